"""The modules that decide know no outside world: no driver, no files, no clock, no API, and nothing of the compiler."""

import ast
from pathlib import Path

from tests.support.paths import ROOT

PACKAGE = ROOT / "node-runtime" / "gpushare_node"

PURE = {
    "core.structs": {"collections.abc", "operator", "typing"},
    "core.strict_document": {"collections.abc", "gpushare_node.core.structs", "enum", "re", "typing"},
    "core.policy": {
        "collections.abc", "enum", "functools", "gpushare_node.core.strict_document", "gpushare_node.core.structs",
        "re", "yaml",
    },
    "partition.state": {"gpushare_node.core.structs", "enum"},
    "partition.operations": {"gpushare_node.core.structs", "gpushare_node.partition.state"},
    "partition.placement": {"collections", "collections.abc", "gpushare_node.core.structs"},
    "partition.layout": {
        "collections.abc", "gpushare_node.core.structs", "gpushare_node.partition.placement", "gpushare_node.partition.state",
        "gpushare_node.core.policy",
    },
    "partition.fitness": {"collections.abc", "enum", "gpushare_node.partition.state", "gpushare_node.core.policy"},
    "partition.plan": {
        "collections", "collections.abc", "gpushare_node.partition.fitness", "gpushare_node.partition.layout",
        "gpushare_node.partition.operations", "gpushare_node.partition.placement", "gpushare_node.partition.state",
        "gpushare_node.core.policy", "gpushare_node.core.structs",
    },
}
"""Each module with all that it imports; it may import modules above it alone."""


def imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            plain = node.module == "gpushare_node"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} if plain else {str(node.module)}
    return found


def test_the_core_imports_what_stands_here_and_nothing_else() -> None:
    earlier: set[str] = set()
    for module, allowed in PURE.items():
        found = imports(PACKAGE / f"{module.replace('.', '/')}.py")
        assert found == allowed, module
        assert {name for name in found if name.startswith("gpushare_node")} <= earlier, module
        earlier.add(f"gpushare_node.{module}")


def test_no_module_of_the_node_runtime_imports_the_compiler() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        assert not {name for name in imports(path) if name.split(".")[0] == "gpushare"}, path.name
