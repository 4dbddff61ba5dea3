"""The words of texts that users read: standard terms, and the actor with its verb; for each refused word a better one."""

import ast
import re
from pathlib import Path

import pytest

from tests.support.paths import ROOT

BETTER = {
    "anew": "again",
    "nobody": "the actor: no pod, no process, nothing",
    "whoever": "the actor: a user, a program, a pod",
    "somebody": "the actor: another program, another node",
    "stand": "be",
    "stands": "is",
    "stood": "was",
    "heed": "obey, follow",
    "withal": "also",
    "thereof": "of it",
}
GENERATED_FROM_TESTS = {"failure-cases.md"}
"""It names tests."""
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED_FROM_TESTS),
    *sorted((ROOT / "compiler/gpushare/findings").glob("*.md")),
    *sorted(path for path in (ROOT / "charts/gpushare").rglob("*") if path.is_file()),
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
def test_docstrings_and_messages_have_the_standard_words(package: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    modules = sorted(package.rglob("*.py"))
    assert modules
    for module in modules:
        tree = list(ast.walk(ast.parse(module.read_text(encoding="utf-8"))))
        texts = [ast.get_docstring(node) or "" for node in tree if isinstance(node, documented)]
        # Of one word, they may be keys and names; sentences are messages.
        strings = [node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts += [text for text in strings if " " in text]
        found = [word for text in texts for word in refused(text)]
        assert not found, f"{module.relative_to(ROOT)}: {advise(found)}"
