"""The modules that decide know no outside world: no driver, no files, no clock, no API, and nothing of the compiler."""

import pytest

from tests.contract.test_layers import NODE, imports

PURE = ("core.structs", "core.strict_document", "core.policy", "partition", "guard")
"""Modules, and packages with all their modules."""
WITHOUT_A_WORLD = {"collections", "collections.abc", "enum", "functools", "operator", "re", "typing"}
PARSER = {"gpushare_node.core.policy": {"yaml"}}


def is_pure(module: str) -> bool:
    return any(f"{module}.".startswith(f"gpushare_node.{pure}.") for pure in PURE)


@pytest.mark.failure_case(67)
@pytest.mark.parametrize("module", sorted(filter(is_pure, NODE.modules)))
def test_what_decides_imports_what_decides_and_nothing_of_the_outside_world(module: str) -> None:
    found = imports(NODE.modules[module], NODE.modules)
    assert {name for name in found if not is_pure(name)} <= WITHOUT_A_WORLD | PARSER.get(module, set())


def test_no_module_of_the_node_runtime_imports_the_compiler() -> None:
    for module, path in NODE.modules.items():
        assert not {name for name in imports(path, NODE.modules) if name.split(".")[0] == "gpushare"}, module
