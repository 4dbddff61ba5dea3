"""The `sharing` of a pool: from a config of the device plugin, the labels of its nodes, and the MIG layouts.

Owns what the device plugin offers for a config on given hardware (k8s-device-plugin v0.20.0), and what an intent can say.
"""

from typing import Any

from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.facts import GPU, MIG, SHARED, ImportedNode, PluginConfig, Strategy
from gpushare.cluster.importing.node_layouts import Layouts
from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.wording import shorten
from gpushare.offering import modes
from gpushare_node.contract.struct import Struct


class SharingSource(Struct):
    """What is shared: the strategy, the replicas by resource, and whether shared resources have names of their own."""

    strategy: Strategy = Strategy.NONE
    replicas: dict[str, int]
    rename: bool = True
    packed: bool = False


def of_config(config: PluginConfig) -> SharingSource:
    """Return what a config shares, on whatever nodes."""
    counts = {name: part.count or 1 for name, part in config.replicas.items()}
    return SharingSource(strategy=config.strategy, replicas=counts, rename=config.rename, packed=config.packed)


def of_labels(node: ImportedNode, strategy: str) -> SharingSource:
    """Return what the labels of a node say."""
    how, replicas, rename = node_objects.strategy(node.labels)
    counts, named = ({GPU: replicas} if how is not Strategy.NONE else {}), {}
    if strategy == "mixed":
        named = {MIG + name: (each, new) for name, (_, each, new) in node_objects.instances(node.labels).items() if each > 1}
    if named:
        how, rename = Strategy.TIME_SLICING, all(new for _, new in named.values())
        counts |= {name: each for name, (each, _) in named.items()}
    return SharingSource(strategy=how, replicas=counts, rename=rename)


def offered(layouts: Layouts, strategy: str) -> dict[str, str | None]:
    """Return the resources that a node offers before sharing, with the MIG profile of each, None for a whole GPU."""
    if strategy != "mixed":
        return {GPU: None}
    names = {profile for layout in layouts.gpus for profile, _ in layout}
    found: dict[str, str | None] = {MIG + name.replace("+", "."): name for name in sorted(names)}
    return found | ({GPU: None} if () in layouts.gpus else {})


def document(shares: SharingSource, layouts: Layouts, strategy: str, part: Part, notes: Notes) -> dict[str, Any] | None:
    """Return the `sharing` of the intent; None if there is none that means the same, which findings report."""
    names = offered(layouts, strategy if layouts.any else "none")
    replicas = {name: count for name, count in shares.replicas.items() if name in names and count > 1}
    if layouts.any:
        return _mig(shares, replicas, layouts, strategy, part, notes)
    if not replicas:
        return {"mode": "exclusive"}
    found: dict[str, Any] = {"mode": "mps" if shares.strategy is Strategy.MPS else "time-slicing", "replicas": replicas[GPU]}
    return found | _how(shares)


def _how(shares: SharingSource) -> dict[str, Any]:
    return ({} if shares.rename else {"rename": False}) | ({"placement": "pack"} if shares.packed else {})


def _mig(  # noqa: PLR0913, PLR0917 - what it is made from
    shares: SharingSource, replicas: dict[str, int], layouts: Layouts, strategy: str, part: Part, notes: Notes
) -> dict[str, Any] | None:
    if strategy == "none":
        notes.error(
            "GS856",
            layouts.part or part,
            "GPUs with MIG, but MIG strategy none: their instances are not offered",
            "set the MIG strategy mixed or single",
            on_key=True,
        )
        return None
    if shares.strategy is Strategy.MPS:
        notes.error(
            "GS856",
            part,
            "MPS on a node whose GPUs have MIG instances: the device plugin does not start",
            "share MIG instances by timeSlicing",
            on_key=True,
        )
        return None
    if strategy == "mixed" and GPU in replicas:
        notes.error(
            "GS862",
            part,
            "whole GPUs of a node are shared, beside others with MIG: an intent shares instances only",
            f"leave {GPU} out of the config, or give all GPUs of the node MIG",
            on_key=True,
        )
        return None
    found: dict[str, Any] = {"mode": "mig"} | ({"strategy": "single"} if strategy == "single" else {}) | _layouts(layouts)
    if not replicas:
        return found
    if strategy == "single":
        return found | {"replicas": replicas[GPU]} | _how(shares)
    names = offered(layouts, strategy)
    return found | {"replicas": {str(names[name]): count for name, count in sorted(replicas.items())}} | _how(shares)


def _layouts(layouts: Layouts) -> dict[str, Any]:
    groups: dict[tuple[tuple[str, int], ...], list[int]] = {}
    for index, layout in enumerate(layouts.gpus):
        groups.setdefault(layout, []).append(index)
    if len(groups) == 1:
        return {"layout": dict(layouts.gpus[0])}
    return {"layouts": [{"gpus": gpus, "layout": dict(layout) or "none"} for layout, gpus in groups.items()]}


def resources(sharing: dict[str, Any], layouts: Layouts) -> dict[str, str | None]:
    """Return the resources that a pool with this `sharing` offers, with what a quota calls each; None for the only one."""
    suffix = SHARED if sharing.get("rename", True) else ""
    if not modes.named(sharing["mode"]).is_partitioned or sharing.get("strategy") == "single":
        return {GPU + (suffix if "replicas" in sharing else ""): None}
    shared = sharing.get("replicas", {})
    return {name + (suffix if profile in shared else ""): profile or GPU for name, profile in offered(layouts, "mixed").items()}


def totals(sharing: dict[str, Any], layouts: Layouts) -> dict[str, int]:
    """Return how many of each resource a node of a pool with this `sharing` offers."""
    found: dict[str, int] = {}
    replicas, rename = sharing.get("replicas", 1), sharing.get("rename", True)
    mixed = modes.named(sharing["mode"]).is_partitioned and sharing.get("strategy") != "single"
    for layout in layouts.gpus:
        for profile, number in layout or (("", 1),):
            each = replicas.get(profile, 1) if isinstance(replicas, dict) else replicas if profile or not layout else 1
            name = MIG + profile.replace("+", ".") if mixed and profile else GPU
            name += SHARED if each > 1 and rename else ""
            found[name] = found.get(name, 0) + number * each
    return found


def cap_comment(sharing: dict[str, Any]) -> str:
    """Return what a comment says of the memory cap; empty for pools that do not share."""
    if modes.named(sharing["mode"]).has_daemon:
        return "MPS gives every client memory / replicas already, which is `even`, the default"
    if "replicas" in sharing:
        return "before, no container had a limit; `cap: even` gives each the same part of the memory, which is what we advise"
    return ""


def name_of(config: PluginConfig | None) -> str:
    """Return what a comment calls the config."""
    return config.origin if config and config.origin else f"config {shorten(config.name)}" if config else ""
