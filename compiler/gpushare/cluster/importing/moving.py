"""`--backend dra`: pools of the device plugin, proposed as pools of NVIDIA's DRA driver; what cannot follow is GS875.

Pods are to claim: by `limits` no part of a GPU's memory can be asked for, and kubelet refuses a name that the plugin had on the
same node. A pool that DRA cannot serve stays as it is.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.cluster.importing import dra_platform
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import GPU, SHARED, Facts
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.core.diagnostics import Path
from gpushare.core.units import parse_percent
from gpushare.core.wording import join_first
from gpushare.facts import vendors
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare.facts.vendors.amd import AMD
from gpushare.intent.types import Autoscaler
from gpushare.offering import claims, modes
from gpushare_node.contract.policy import Backend

_KARPENTER = "karpenter.sh/"
_PARTITIONER = ("platform", "partitioner")
_HINT = "leave it on the device plugin: a cluster may have pools of both"


def move(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Give every pool that can follow the back end DRA, and the platform what the driver needs."""
    default = draft.spec.get("platform", {}).get("backend")
    staying = {name: pool for name, pool in draft.pools.items() if pool.get("backend", default) != Backend.DRA}
    version = dra_platform.oldest_kubelet(facts)
    moved = []
    for name, pool in staying.items():
        path: Path = ("pools", name)
        why = _obstacle(pool, version)
        if why:
            notes.warn("GS875", _part(draft, path), f"pool {name} stays on the device plugin: {why}", _HINT, on_key=True)
            draft.note(path, None, f"stays on the device plugin: {why}")
        else:
            _follow(name, pool, draft, notes)
            moved.append(name)
    if not moved:
        return
    if draft.spec.get("platform", {}).get("partitioner") == "mig-manager":
        notes.warn(
            "GS875",
            _part(draft, _PARTITIONER),
            "mig-manager does not stop the DRA driver while it divides GPUs: the intent has partitioner: gpushare",
            "disable mig-manager before gpushare enforces",
        )
        draft.put(_PARTITIONER, "gpushare", None, "mig-manager before, which cannot divide GPUs of DRA")
    dra_platform.need(facts, draft, notes, f"as --backend dra says, for {join_first(moved)}")


def _part(draft: Draft, path: Path) -> Part:
    return draft.part_at(path) or Part(None, FromProgram(name="--backend"))


def _obstacle(pool: Mapping[str, Any], version: tuple[int, int] | None) -> str:
    """Return why the DRA driver cannot serve a pool; empty if it can."""
    mode, nodes = pool["sharing"]["mode"], pool["nodes"]
    card = cards.load(pool["card"]) if pool["card"] in cards.ids() else None
    if card is not None and vendors.of(card) is AMD:
        return "NVIDIA's DRA driver does not serve AMD's GPUs"
    if Backend.DRA not in modes.named(mode).backends:
        return f"there is no {mode} with DRA"
    if (parse_percent(pool.get("memory", {}).get("oversubscribe")) or 0) > 10_000:
        return "its caps exceed the memory, and claims of memory never add up to more than a GPU has"
    if card is not None and (unknown := _unknown(pool["sharing"], card)):
        return f"claims on a part of a device ask for a part of all that it has, and that of {unknown} is not known"
    if (
        any(key.startswith(_KARPENTER) for key in nodes.get("matchLabels", {}))
        or nodes.get("autoscaler") == Autoscaler.KARPENTER
    ):
        return "Karpenter adds no node for pods with claims"
    if nodes.get("autoscaler") and nodes.get("expected") == 0:
        return "Cluster Autoscaler does not know the devices of an empty group"
    needed = dra_platform.needed(pool)
    if version is not None and version < needed:
        return f"it needs Kubernetes {dra_platform.dotted(needed)}, and the oldest node has {dra_platform.dotted(version)}"
    return ""


def _unknown(sharing: Mapping[str, Any], card: Card) -> str:
    """Return the device of which the catalogue lacks what claims on a part of it must name."""
    replicas = sharing.get("replicas")
    if replicas is None:
        return ""
    if sharing["mode"] == "time-slicing":
        return card.name if card.memory_mib is None else ""
    names = replicas if isinstance(replicas, dict) else card.profiles
    profiles = (card.profiles.get(name) for name in names)
    return next((one.name for one in profiles if isinstance(one, MigProfile) and claims.missing(one)), "")


def _follow(name: str, pool: dict[str, Any], draft: Draft, notes: Notes) -> None:
    path, sharing = ("pools", name), pool["sharing"]
    part = draft.part_at((*path, "sharing")) or _part(draft, path)
    for field, value in (("rename", False), ("strategy", "single")):
        if sharing.get(field, True) == value:
            del sharing[field]
            text = (
                f"{field}: {str(value).lower()} of pool {name} does not follow: it names {GPU} in limits, and pods will claim"
            )
            notes.warn("GS875", part, text, f"docs/dra.md: pods use the templates gpushare-{name}.SHAPE", on_key=True)
    pool["backend"] = Backend.DRA.value
    shape = "share" if sharing["mode"] == "time-slicing" else "gpu" if sharing["mode"] == "exclusive" else "PROFILE"
    before = "instances" if shape == "PROFILE" else GPU + (SHARED if shape == "share" else "")
    comment = [f"as --backend dra says; pods claim by the template gpushare-{name}.{shape}, no longer {before} in limits"]
    if "replicas" not in sharing:
        comment.append("a pod that asked for several devices needs a claim of its own, with count: 2 for two")
    draft.note((*path, "backend"), part, "\n".join(comment))
