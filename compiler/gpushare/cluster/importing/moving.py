"""`--backend dra`: pools of the device plugin, proposed as pools of NVIDIA's DRA driver; what cannot follow is GS875.

Pods are to claim: by `limits` no part of a GPU's memory can be asked for, and kubelet refuses a name that the plugin had on the
same node. A pool that DRA cannot serve stays as it is. The platform says who installs the driver, and the Kubernetes that the
pools need.
"""

from collections.abc import Mapping
from typing import Any

from gpushare import vendors
from gpushare.cluster.importing import node_objects
from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import GPU, SHARED, Facts
from gpushare.cluster.importing.helm_values import OPERATOR
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.core.diagnostics import Path
from gpushare.core.units import parse_percent
from gpushare.core.wording import join_first
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Card, MigProfile
from gpushare.intent.types import ON_DEMAND, Autoscaler, DraVia, Requests
from gpushare.offering import claims, modes
from gpushare_node.contract.policy import Backend

_KARPENTER = "karpenter.sh/"
_PARTITIONER = ("platform", "partitioner")
_HINT = "leave it on the device plugin: a cluster may have pools of both"


def move(facts: Facts, draft: Draft, notes: Notes) -> None:
    """Give every pool that can follow the back end DRA, and the platform what the driver needs."""
    default = draft.spec.get("platform", {}).get("backend")
    staying = {name: pool for name, pool in draft.pools.items() if pool.get("backend", default) != Backend.DRA}
    version = oldest_kubelet(facts)
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
    need(facts, draft, notes, f"as --backend dra says, for {join_first(moved)}")


def _part(draft: Draft, path: Path) -> Part:
    return draft.part_at(path) or Part(None, FromProgram(name="--backend"))


def _obstacle(pool: Mapping[str, Any], version: tuple[int, int] | None) -> str:
    """Return why the DRA driver cannot serve a pool; empty if it can."""
    mode, nodes = pool["sharing"]["mode"], pool["nodes"]
    card = cards.load(pool["card"]) if pool["card"] in cards.ids() else None
    if card is not None and not vendors.of(card).dra_driver:
        return f"NVIDIA's DRA driver does not serve {card.name}"
    if not modes.named(mode).takes_claims:
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
    wanted = needed(pool)
    if version is not None and version < wanted:
        return f"it needs Kubernetes {dotted(wanted)}, and the oldest node has {dotted(version)}"
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


CLAIMING, DIVIDING = (1, 34), (1, 36)
"""From which on claims are stable; and from which on a device may have several, and a class a name for limits."""
_NEWEST = (1, 37)
_OPERATOR_ROOT = "/run/nvidia/driver"
_PATH = ("platform", "dra")


def dotted(version: tuple[int, int]) -> str:
    """Return a version of Kubernetes as an intent has it."""
    return f"{version[0]}.{version[1]}"


def needed(pool: Mapping[str, Any]) -> tuple[int, int]:
    """Return the version of Kubernetes that a pool of DRA needs."""
    has_names = pool.get("requests", Requests.CLAIMS) != Requests.CLAIMS
    is_divided = "replicas" in pool["sharing"] or pool["sharing"].get("layout") == ON_DEMAND
    return DIVIDING if has_names or is_divided else CLAIMING


def of_dra(draft: Draft) -> dict[str, dict[str, Any]]:
    """Return the pools of DRA."""
    default = draft.spec.get("platform", {}).get("backend")
    return {name: pool for name, pool in draft.pools.items() if pool.get("backend", default) == Backend.DRA}


def oldest_kubelet(facts: Facts) -> tuple[int, int] | None:
    """Return the version of the oldest kubelet, a lower bound of the API server's version; None if no Node says one."""
    return min(filter(None, map(node_objects.kubelet, facts.nodes)), default=None)


def need(facts: Facts, draft: Draft, notes: Notes, comment: str) -> None:
    """Add what pools need that come to DRA: the bundle installs the driver, if none is there."""
    if facts.dra_values and not facts.intents:
        why = f"{facts.dra_values[0].origin} were given: this release stays, with the values that the bundle's README lists"
        draft.put((*_PATH, "via"), DraVia.EXISTING.value, facts.dra_values[0].part, why)
    elif "dra" not in draft.spec.get("platform", {}):
        draft.put((*_PATH, "via"), DraVia.CHART.value, None, comment)
        if root := _driver_root(facts, draft):
            draft.put((*_PATH, "driverRoot"), root, None, "where the operator installs the GPU driver")
    _kubernetes(facts, draft, notes)
    if draft.spec["platform"].get("stack") == "existing":
        part = facts.settings[0].part if facts.settings else Part(None, FromProgram(name="--backend"))
        notes.warn(
            "GS873",
            part,
            "the installed device plugin would stay on nodes of DRA, which then wait with the reason BackEndRunning",
            "give its DaemonSet the node affinity gpushare.dev/backend NotIn [none, dra], or import with --stack",
            on_key=True,
        )


def _driver_root(facts: Facts, draft: Draft) -> str:
    given = next((one for one in facts.settings if one.stack == OPERATOR), None)
    installs = "driver" in draft.spec.get("platform", {})
    if given is None or (not installs and given.part.at("driver", "enabled").truth is False):
        return _OPERATOR_ROOT if installs else ""
    return given.part.at("hostPaths", "driverInstallDir").text or _OPERATOR_ROOT


def _kubernetes(facts: Facts, draft: Draft, notes: Notes) -> None:
    version = oldest_kubelet(facts)
    wanted = max(map(needed, of_dra(draft).values()))
    if "kubernetes" in draft.spec:
        if version is None:
            draft.put(("kubernetes",), max(draft.spec["kubernetes"], dotted(wanted)))
        return
    if version is not None:
        draft.put(("kubernetes",), dotted(min(version, _NEWEST)), None, "of the oldest kubelet; no API server is older")
        return
    part = next(
        (draft.parts[path] for path in draft.parts if path[:1] == ("pools",)), Part(None, FromProgram(name="--backend"))
    )
    text = f"assumed: Kubernetes {dotted(wanted)}, which pools of DRA need; no Node says which it is"
    notes.warn("GS860", part, text, "write spec.kubernetes, or give the Nodes")
    draft.put(("kubernetes",), dotted(wanted), None, "assumed: pools of DRA need it")
