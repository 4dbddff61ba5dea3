"""Pools for virtual machines: the file of NVIDIA's vGPU device manager, and their parts of the bundle's `README.md`.

One config that the manager cannot parse makes the whole file unusable, and a node whose label names a missing config fails. So
former configs are kept.
"""

from collections.abc import Iterator
from typing import Any

from gpushare.bundle.lock import Lock
from gpushare.core import emit
from gpushare.offering import modes
from gpushare.offering.backends import vgpu
from gpushare.resolved.plan import Plan

FILE = vgpu.FILE


def config(plan: Plan, new_lock: Lock) -> str | None:
    """Return the text of the manager's file; None if no node has vGPUs, or the bundle only observes."""
    if not plan.vm_pools or plan.intent.observes:
        return None
    return emit.yaml_text(vgpu.document(new_lock.vgpu_configs.every()))


def pools(plan: Plan) -> Iterator[str]:
    """Yield the sections on the pools for virtual machines."""
    if not plan.vm_pools:
        return
    yield from ("## Virtual machines", "", *dict.fromkeys(modes.of(pool.pool).description for pool in plan.vm_pools))
    yield from ("gpushare writes the configs of NVIDIA's vGPU device manager, and does nothing on these nodes.", "")
    yield from ("| pool | card | vGPU | nodes | resource | a node has | all nodes have |", "|---|---|---|---|---|---|---|")
    for pool in plan.vm_pools:
        number, total = ("?" if one is None else str(one) for one in (pool.nodes, pool.total))
        cells = (pool.name, pool.card.name, pool.kind.name, number, f"`{pool.resource}`", str(pool.per_node), total)
        yield f"| {' | '.join(cells)} |"
    yield ""
    yield from (
        "KubeVirt offers them only if its object allows it. That object is shared: merge this, and overwrite nothing.",
        "",
    )
    yield from (f"    {line}" for line in emit.yaml_text(_permitted(plan)).splitlines())
    yield from (
        "",
        "`externalResourceProvider`: NVIDIA's device plugin for KubeVirt offers them. Before KubeVirt 1.8, write the",
    )
    yield "feature gate `DisableMDEVConfiguration` instead of `mediatedDevicesConfiguration`. A virtual machine requests one in"
    yield "`spec.template.spec`:"
    yield ""
    device = {"domain": {"devices": {"gpus": [{"name": "gpu0", "deviceName": plan.vm_pools[0].resource}]}}}
    yield from (f"    {line}" for line in emit.yaml_text(device).splitlines())
    yield from (
        "",
        "The names follow those of the driver, which may be longer or begin with `GRID`. On a node this prints them:",
        "",
    )
    yield from ("    cat /sys/class/mdev_bus/*/mdev_supported_types/*/name", "")
    yield "The virtual machine needs NVIDIA's guest driver of the same vGPU branch and a licence: gpushare installs neither."
    yield ""


def _permitted(plan: Plan) -> dict[str, Any]:
    kinds = {pool.resource: vgpu.device_name(pool.vendor, pool.kind) for pool in plan.vm_pools}
    devices = [
        {"mdevNameSelector": name, "resourceName": resource, "externalResourceProvider": True}
        for resource, name in sorted(kinds.items())
    ]
    configuration = {
        "mediatedDevicesConfiguration": {"enabled": False},
        "permittedHostDevices": {"mediatedDevices": devices},
    }
    return {"spec": {"configuration": configuration}}
