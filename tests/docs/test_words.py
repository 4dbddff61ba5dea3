"""The words of texts that users read: standard terms, and the actor with its verb; for each refused word a better one."""

import ast
import io
import re
import tokenize
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
    "amid": "during",
    "mend": "fix",
    "for ever": "forever, permanently, never",
    "bears": "has, tolerates",
    "borne": "tolerated",
    "in vain": "without success",
    "by heart": "the verb of what is done: indexes, caches",
    "is no name": "invalid name X",
    "is no label": "invalid label X",
    "is no address": "invalid address X",
    "is no version": "invalid version X",
    "is no registry": "invalid registry X",
}
GENERATED_FROM_TESTS = {"failure-cases.md"}
"""It names tests."""
TEXTS = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "examples/README.md")),
    *(path for path in sorted((ROOT / "docs").glob("*.md")) if path.name not in GENERATED_FROM_TESTS),
    *sorted((ROOT / "compiler/gpushare/findings").glob("*.md")),
    *sorted(path for path in (ROOT / "charts/gpushare").rglob("*") if path.is_file()),
    *sorted((ROOT / "compiler/gpushare/schemas").glob("*.json")),
    *sorted((ROOT / "examples").glob("*/README.md")),
    *sorted(path for path in (ROOT / "profiles").rglob("*") if path.suffix in {".md", ".yaml"}),
    ROOT / "node-runtime/README.md",
    ROOT / "Makefile",
]


PACKAGES = [ROOT / name for name in ("compiler/gpushare", "node-runtime/gpushare_node", "node-runtime/image", "docs", ".ci")]


def refused(text: str) -> list[str]:
    return re.findall(rf"\b({'|'.join(BETTER)})\b", " ".join(text.split()), re.IGNORECASE)


def advise(found: list[str]) -> str:
    return "; ".join(f"{word!r}: write {BETTER[word.lower()]!r}" for word in found)


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_texts_for_users_have_the_standard_words(path: Path) -> None:
    found = refused(path.read_text(encoding="utf-8"))
    assert not found, advise(found)


def comments(source: str) -> list[str]:
    """The comments of a module."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return [token.string for token in tokens if token.type == tokenize.COMMENT]


@pytest.mark.parametrize("package", PACKAGES, ids=lambda path: path.name)
def test_docstrings_comments_and_messages_have_the_standard_words(package: Path) -> None:
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    modules = sorted(package.rglob("*.py"))
    assert modules
    for module in modules:
        source = module.read_text(encoding="utf-8")
        tree = list(ast.walk(ast.parse(source)))
        texts = comments(source) + [ast.get_docstring(node) or "" for node in tree if isinstance(node, documented)]
        # Of one word, they may be keys and names; sentences are messages.
        strings = [node.value for node in tree if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        texts += [text for text in strings if " " in text]
        found = [word for text in texts for word in refused(text)]
        assert not found, f"{module.relative_to(ROOT)}: {advise(found)}"
