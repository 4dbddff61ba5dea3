"""A back end's own is in its module: who adds one looks at the modules that are listed here, and at no others."""

import ast
from pathlib import Path

import pytest

from tests.contract.test_layers import COMPILER, NODE, House

BY_NAME = {
    COMPILER.name: {
        "compare.nodes": "what a released node takes from tenants",
        "compare.outages": "how long a node is without any",
        "compare.snapshots": "the back end of a bundle that names none",
        "intent.types": "the default, and whether the DRA driver is needed",
        "cluster.live.claims": "the driver's slices, classes and claims",
        "cluster.live.objects": "vGPUs",
        "offering.modes.mps": "who offers the mode",
        "offering.modes.partition": "who offers the mode",
        "offering.modes.traits": "who offers a mode that says nothing else",
        "offering.modes.vgpu": "who offers the mode",
        "render.stacks.amd": "the file of AMD's config manager",
        "render.autoscaling": "what a node that is not there yet will offer",
        "render.stacks.dra": "the driver's values, classes and templates",
        "render.mig_parted": "the file of mig-manager",
        "resolved.policy": "what the node runtime is told",
        "render.readme": "how users ask for a share",
        "render.values": "the values of NVIDIA's plugin",
        "render.vgpu": "the file of the vGPU device manager",
        "resolved.claim_plan": "claims of a pool",
        "resolved.node_plan": "what divides GPUs",
        "render.offer": "what a pool offers, for programs",
        "resolved.plan": "the pools of each, and the resources of plugins",
        "resolved.vm_pool": "vGPUs",
        "rules.nodes": "what an autoscaler knows of a node",
        "rules.backend": "what DRA does not have",
        "rules.device_classes": "the class that the driver's chart makes",
        "rules.device_parts": "sizes of claims",
        "rules.ineffective_settings": "fields that one of them does not read",
        "rules.on_demand": "instances for each claim",
        "rules.platform": "the strategy of NVIDIA's plugin",
        "rules.pools": "the names of AMD's config manager",
        "rules.versions": "the release of NVIDIA's plugin",
        "offering.claims": "claims",
        "study.simulation.supply": "who chooses the device of a share",
        "report.status": "nodes of the driver",
    },
    NODE.name: {
        "cli.wiring": "how each is built",
        "contract.policy": "the fields of a policy",
        "reconcile.backend_gate": "the change from one to the other",
        "reconcile.release": "the back end of a node without a policy",
    },
}
"""Modules outside `backends` that know a back end by name, and for what. All others ask `backends.of`, or `modes`."""

ALLOWED = {
    "backends": "the back ends themselves",
    "offering.backends": "the same of the compiler",
    "cluster.importing": "writes an intent from what others installed",
}

_NEUTRAL = {"backend", "requests"}
"""Modules of `backends` that are of no one back end."""


def is_allowed(name: str) -> bool:
    return any(f"{name}.".startswith(f"{package}.") for package in ALLOWED)


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
