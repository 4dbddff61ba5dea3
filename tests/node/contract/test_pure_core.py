"""The modules that decide know no outside world: no driver, no files, no clock, no API, and nothing of the compiler."""

import pytest

from tests.contract.test_layers import NODE, imports

PURE = {
    "contract": (),
    "partition": ("contract",),
    "guard": ("contract",),
}
"""Modules, and packages with all their modules: what of ours they may import beside themselves."""
WITHOUT_A_WORLD = {"collections", "collections.abc", "enum", "functools", "math", "operator", "re", "types", "typing"}
PARSER = {
    "gpushare_node.contract.policy": {"yaml"},
    "gpushare_node.contract.tenancy": {"json"},
    "gpushare_node.contract.windows": {"datetime", "zoneinfo"},
}


def is_in(module: str, rooms: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"gpushare_node.{room}.") for room in rooms)


@pytest.mark.failure_case(67)
@pytest.mark.parametrize(
    ("room", "module"), [(room, module) for room in PURE for module in sorted(NODE.modules) if is_in(module, (room,))]
)
def test_decision_modules_import_no_io(room: str, module: str) -> None:
    found = imports(NODE.modules[module], NODE.modules)
    foreign = {name for name in found if not is_in(name, (room, *PURE[room]))}
    assert foreign <= WITHOUT_A_WORLD | PARSER.get(module, set())


def test_no_module_of_the_node_runtime_imports_the_compiler() -> None:
    for module, path in NODE.modules.items():
        assert not {name for name in imports(path, NODE.modules) if name.split(".")[0] == "gpushare"}, module
