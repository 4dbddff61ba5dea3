"""No message shows a name of a class of ours: a user reads Node, not the type that holds one."""

import ast
import re
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "compiler/gpushare"
KINDS = {"ConfigMap", "DaemonSet"}
"""Classes of ours that are called like the object of Kubernetes that they hold."""


def trees() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text())) for path in sorted(PACKAGE.rglob("*.py"))]


def test_no_text_has_the_name_of_a_class() -> None:
    classes = {node.name for _, tree in trees() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    names = {name for name in classes if re.fullmatch(r"(?:[A-Z][a-z]+){2,}", name)}
    names -= KINDS
    found = []
    for path, tree in trees():
        texts = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
        parts = (part.value for text in texts for part in text.values if isinstance(part, ast.Constant))
        found += [f"{path.name}: {name} in {part!r}" for part in parts for name in names & set(re.findall(r"\w+", str(part)))]
    assert found == []
