"""A back end's own is in its module: who adds one looks at the modules that are listed here, and at no others."""

import ast
from pathlib import Path

import pytest

from tests.contract.test_layers import COMPILER, NODE, House

BY_NAME = {
    COMPILER.name: {
        "intent.types": "the default",
        "offering.claims": "claims",
        "cluster.live.claims": "the driver's slices, classes and claims",
        "cluster.live.objects": "vGPUs",
        "render.values": "the ConfigMap of the vGPU device manager",
        "resolved.plan": "vGPUs",
        "report.status": "nodes of the driver",
    },
    NODE.name: {
        "cli.wiring": "how each is built",
        "contract.policy": "the fields of a policy",
        "reconcile.backend_gate": "the change from one to the other",
        "reconcile.release": "the back end of a node without a policy",
    },
}
"""Modules outside `backends` that know a back end by name, and for what. All others ask `backends.of`, or `modes`.

Modules whose names begin with a back end's are its own.
"""

ALLOWED = {
    "backends": "the back ends themselves",
    "offering.backends": "the same of the compiler",
    "cluster.importing": "writes an intent from what others installed",
}

_NEUTRAL = {"backend", "requests"}
"""Modules of `backends` that are of no one back end."""


_OWN = {"dra", "vgpu"}


def is_allowed(name: str) -> bool:
    is_own = name.rpartition(".")[2].partition("_")[0] in _OWN
    return is_own or any(f"{name}.".startswith(f"{package}.") for package in ALLOWED)


def knows_one(house: House, path: Path) -> bool:
    """Whether the module has a member of `Backend`, or imports a module of `backends` that is one back end's."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Attribute(value=ast.Name(id="Backend") | ast.Attribute(attr="Backend"), attr="DRA" | "DEVICE_PLUGIN"):
                return True
            case ast.ImportFrom(module=str(module), names=names) if ".backends." in f"{module}.":
                package, _, inside_of = f"{module}.".partition(".backends.")
                inside = inside_of.split(".")[:1] if inside_of else [one.name for one in names]
                if any(f"{package}.backends.{one}" in house.modules and one not in _NEUTRAL for one in inside):
                    return True
    return False


@pytest.mark.parametrize("house", [COMPILER, NODE], ids=lambda house: house.name)
def test_only_listed_modules_know_a_back_end(house: House) -> None:
    names = {module.removeprefix(f"{house.name}."): path for module, path in house.modules.items()}
    knowing = {name for name, path in names.items() if not is_allowed(name) and knows_one(house, path)}
    assert knowing == BY_NAME[house.name].keys(), "ask a back end for a trait, or list the module"
