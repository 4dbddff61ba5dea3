"""What `pools:` of an intent says for a candidate: the pools that the user wrote, with other sharing and numbers of nodes."""

from collections.abc import Mapping
from typing import Any

from gpushare import modes
from gpushare.simulation.found import Candidate, Choice
from gpushare_node.contract.struct import NOTHING

_OF_SHARING = ("rename", "placement", "strategy")


def pools(candidate: Candidate, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the section. `written` is that of the searched intent, whose other settings the pools keep.

    Left out is what the new sharing has no use for: a cap that was chosen for other shares, and what concerns shares alone
    where nothing is shared. Only one of the pools that were one can be the default: none is.
    """
    return {choice.pool.name: _pool(choice, written.get(choice.origin, NOTHING)) for choice in candidate.choices}


def _pool(choice: Choice, written: Mapping[str, Any]) -> dict[str, Any]:
    found = {key: value for key, value in written.items() if not (choice.is_split and key == "default")}
    found |= {
        "card": choice.pool.card,
        "nodes": _nodes(choice, written.get("nodes", NOTHING)),
        "gpusPerNode": choice.pool.gpus_per_node,
    }
    if not choice.is_current:
        return {key: value for key, value in (found | _shared(choice, written)).items() if value is not None}
    return found


def _shared(choice: Choice, written: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections on sharing, memory and enforcement; None for a section to leave out."""
    mode = modes.of(choice.pool)
    is_shared = bool(choice.pool.sharing.replicas)
    kept = _OF_SHARING if is_shared else ("strategy", "placement") if mode.is_partitioned else ()
    own = written.get("sharing", NOTHING)
    sharing = mode.document() | {key: own[key] for key in kept if key in own and (key != "strategy" or mode.is_partitioned)}
    memory = {key: value for key, value in written.get("memory", NOTHING).items() if key == "reserve"}
    enforcement = written.get("enforcement", NOTHING)
    if enforcement.get("mechanism") not in {None, *(one.value for one in mode.mechanisms)}:
        enforcement = {key: value for key, value in enforcement.items() if key != "mechanism"}
    return {
        "sharing": sharing,
        "memory": memory if memory and is_shared and not mode.has_daemon else None,
        "enforcement": enforcement if enforcement and is_shared else None,
    }


def _nodes(choice: Choice, written: Mapping[str, Any]) -> dict[str, Any]:
    chosen = choice.pool.nodes
    if chosen.names:
        return {**written, "names": list(chosen.names)}
    labels = {"matchLabels": dict(chosen.match_labels)} if chosen.match_labels else {}
    return {**written, **labels, "expected": chosen.expected}
