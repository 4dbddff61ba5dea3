"""What an intent with pools of DRA says of the platform: who installs the driver, and the Kubernetes that the pools need."""

import re
from collections.abc import Mapping
from typing import Any

from gpushare.cluster.importing.draft import Draft
from gpushare.cluster.importing.facts import Facts
from gpushare.cluster.importing.helm_values import OPERATOR
from gpushare.cluster.importing.parts import FromProgram, Notes, Part
from gpushare.intent.types import ON_DEMAND, DraVia, Requests
from gpushare_node.contract.policy import Backend

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
    texts = (node.part.at("status", "nodeInfo", "kubeletVersion").text for node in facts.nodes)
    found = (re.match(r"v?(\d{1,4})\.(\d{1,4})", text) for text in texts)
    return min(((int(one[1]), int(one[2])) for one in found if one), default=None)


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
