"""What depends on a mode asks `gpushare.offering.modes` for a trait: no other package knows a mode by its name or class."""

import ast
from pathlib import Path

from gpushare.intent.types import Mode
from tests.contract.test_layers import COMPILER

CLASSES = {"Exclusive", "TimeSlicing", "Mps", "Mig", "Partition", "Vgpu"}
WORDS = {mode.value for mode in Mode}
MAY_KNOW = {
    "intent": "builds the settings of a mode from a document",
    "offering": "has the traits of each mode; a back end reads the keywords of former configs",
    "reading": "hints on the keywords of a document that does not fit its schema",
    "cluster.importing": "writes the keywords of an intent from what others call the modes",
}


def branches(path: Path) -> list[str]:
    """Every import of a mode's class, member of `Mode` and comparison with a mode's word in the file."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Compare():
                parts = [part for side in (node.left, *node.comparators) for part in getattr(side, "elts", [side])]
                found += [ast.unparse(node) for part in parts if isinstance(part, ast.Constant) and part.value in WORDS]
            case ast.MatchValue(value=ast.Constant(value=str(word))) if word in WORDS:
                found.append(word)
            case ast.Attribute(value=ast.Name(id="Mode")):
                found.append(ast.unparse(node))
            case ast.ImportFrom(module=str(module), names=names) if module.startswith("gpushare."):
                found += [one.name for one in names if one.name in CLASSES]
            case ast.Attribute(value=ast.Name(id="types"), attr=name) if name in CLASSES:
                found.append(name)
    return found


def test_only_mode_packages_branch_on_a_mode() -> None:
    for module, path in COMPILER.modules.items():
        may_know = any(f"{module}.".startswith(f"gpushare.{package}.") for package in MAY_KNOW)
        assert may_know or not branches(path), f"{module}: ask a trait of gpushare.offering.modes"
