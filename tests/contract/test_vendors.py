"""A vendor's names are in its module: nothing else of the compiler spells its prefix, but what reads its configurations."""

import ast
from collections.abc import Iterator
from pathlib import Path

from gpushare.vendors.nvidia import NVIDIA
from tests.support.paths import ROOT

COMPILER = ROOT / "compiler" / "gpushare"
ALLOWED = {
    "vendors": "the names themselves",
    "importing": "reads NVIDIA's own configurations, values and labels, and no other vendor's",
    "manifests": "knows the objects and states of NVIDIA's operator",
}


def texts(path: Path) -> Iterator[ast.Constant]:
    """Yield the texts of a module that are no docstrings."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node


def test_only_what_is_nvidias_by_its_subject_spells_nvidias_prefix() -> None:
    found = {
        f"{path.relative_to(COMPILER)}:{text.lineno}"
        for path in COMPILER.rglob("*.py")
        if path.relative_to(COMPILER).parts[0] not in ALLOWED
        for text in texts(path)
        if NVIDIA.prefix in str(text.value)
    }
    assert not found, f"ask gpushare.vendors instead: {sorted(found)}"
