"""The words of texts that users read: standard terms, and the actor with its verb; for each refused word a better one."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BETTER = {
    "anew": "again",
    "nobody": "the actor: no pod, no process, nothing",
    "somebody": "the actor: another program, another node",
    "stand": "be",
    "stands": "is",
    "stood": "was",
    "heed": "obey, follow",
    "withal": "also",
    "thereof": "of it",
}
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *(ROOT / "docs" / name for name in ("architecture.md", "bundle.md", "token.md", "decisions.md", "node.md", "intent.md")),
    *sorted((ROOT / "compiler/gpushare/findings").glob("*.md")),
    *(ROOT / "node-runtime/gpushare_node/reporting" / name for name in ("reasons.py", "messages.py")),
]


PACKAGES = (ROOT / "compiler/gpushare", ROOT / "node-runtime/gpushare_node")


def refused(text: str) -> list[str]:
    return re.findall(rf"\b({'|'.join(BETTER)})\b", text, re.IGNORECASE)


def advise(found: list[str]) -> str:
    return "; ".join(f"{word!r}: write {BETTER[word.lower()]!r}" for word in found)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_texts_for_users_have_the_standard_words(path: Path) -> None:
    found = refused(path.read_text(encoding="utf-8"))
    assert not found, advise(found)


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_docstrings_have_the_standard_words(package: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    modules = sorted(package.rglob("*.py"))
    assert modules
    for module in modules:
        nodes = [node for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))) if isinstance(node, documented)]
        found = [word for node in nodes for word in refused(ast.get_docstring(node) or "")]
        assert not found, f"{module.relative_to(ROOT)}: {advise(found)}"
