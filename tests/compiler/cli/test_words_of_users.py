"""No message shows a name of a class of ours: a user reads Node, not the type that holds one."""

import ast
import re

from tests.support.paths import ROOT

PACKAGE = ROOT / "compiler/gpushare"
KINDS = {"ConfigMap", "DaemonSet", "DeviceClass", "DeviceConfig"}
"""Classes of ours that are called like the object of the cluster that they hold."""


def test_no_text_has_the_name_of_a_class() -> None:
    sources = {path: path.read_text() for path in sorted(PACKAGE.rglob("*.py"))}
    classes = {name for text in sources.values() for name in re.findall(r"^ *class (\w+)", text, re.MULTILINE)}
    names = {name for name in classes if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", name)} - KINDS
    assert names
    found = []
    for path, source in sources.items():
        texts = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.JoinedStr))
        parts = (part.value for text in texts for part in text.values if isinstance(part, ast.Constant))
        found += [f"{path.name}: {name} in {part!r}" for part in parts for name in names & set(re.findall(r"\w+", str(part)))]
    assert found == []
