"""How long nodes are out of service, and how many at once: from the pool's rollout, and from measured times. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.compare.changes import Change, Move, Outage, PoolChange, Start
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.nodes import NodeMoves, released
from gpushare.compare.snapshots import PoolSide, exclusive
from gpushare.intent.types import Requests
from gpushare.offering import backends
from gpushare.vendors import VENDORS
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import Backend, OnBusy
from gpushare_node.contract.windows import Window, locate

_RELABEL_SECONDS = 5
"""From the taint to the new allocatable: 3.6 s (`python -m tests.bench.cluster_loop`), rounded up."""
_LAYOUT_SECONDS = 10
"""The same with instances to destroy and create. The driver's part is an estimate: the measurement simulates GPUs."""
_MODE_SECONDS = 60
"""The same with a change of MIG mode, where the reset of each GPU takes up to half a minute; an estimate too."""

_FORGET_SECONDS = 75
"""The same to DRA with names in `limits`, until kubelet has forgotten that the plugin had them: 71 s there."""


def outage(
    change: PoolChange, cluster: NodeMoves, moves: Sequence[Move], spec: Mapping[str, Any], now: float | None = None
) -> Outage | None:
    """Return the outage of nodes that join or stay in the pool, or leave it for no pool. None: no node goes out of service.

    `spec` is that of the new policy, or of the last one if the pool is removed: a node that leaves uses its old pool's slots.
    `now` is in seconds since 1970; without it no opening is computed.
    """
    rollout = spec.get("rollout") or {}
    nodes = change.nodes.after if change.name in cluster.successors.values() else change.touched
    if not rollout or nodes == 0 or change.successor is not None:
        return None
    ways = [(old, new, _seconds(old, new)) for old, new in _ways(change, cluster, moves)]
    seconds = max((each for _, _, each in ways), default=0)
    if not seconds:
        return None
    # New nodes, and nodes that leave for no pool, wait for no window.
    is_held = (old is not None and new is cluster.after.get(change.name) and each > 0 for old, new, each in ways)
    # For how long the node runtime waits for the vendor's own program: nothing of it was measured.
    divided = [new for old, new, each in ways if _divides(old, new) and each == seconds]
    return Outage(
        pool=change.name,
        nodes=nodes,
        at_once=_at_once(rollout["maxUnavailable"], change.nodes.after or change.nodes.before),
        seconds=seconds,
        is_bound=bool(divided),
        vendor=(divided[0] if divided else ways[0][1]).vendor.word,
        drain_seconds=rollout["drainTimeoutSeconds"],
        on_busy=rollout["onBusy"],
        start=_start(spec, now) if any(is_held) else None,
    )


def tainted(change: PoolChange, cluster: NodeMoves, moves: Sequence[Move]) -> Effect | None:
    """Return that nodes of the pool get the taint of the vendor's program, which new nodes get before their first pod."""
    new = cluster.after.get(change.name)
    if new is None or new.vendor.layout_taint is None:
        return None
    ways = [(old, one) for old, one in _ways(change, cluster, moves) if one is new]
    if change.change is Change.NEW and change.name not in cluster.successors.values():
        ways.append((None, new))
    if not any(_divides(old, one) for old, one in ways):
        return None
    return Effect(kind=EffectKind.TAINTED, pool=change.name, subject=new.vendor.layout_taint.key, vendor=new.vendor.word.value)


def begins(pool: str, old: Mapping[str, Any], new: Mapping[str, Any], now: float | None) -> Effect | None:
    """Return that changes which nodes hold back may begin, if the rollout settings of the new policy no longer forbid it.

    Whether a node holds one back only the cluster knows. None if the former settings held nothing back.
    """
    before, after = old.get("rollout") or {}, new.get("rollout") or {}
    was_held = bool(before.get("paused") or before.get("windows"))
    is_same = all(before.get(key) == after.get(key) for key in ("paused", "windows"))
    if not was_held or is_same or not after or after.get("paused"):
        return None
    start = _start(new, now)
    return Effect(
        kind=EffectKind.BEGINS,
        pool=pool,
        subject="rollout",
        after=None if start is None else start.opening or "whose time zone is unknown here",
    )


def _start(spec: Mapping[str, Any], now: float | None) -> Start | None:
    """Return what holds the change to this policy back; None if it may begin now, as far as the hour is concerned."""
    rollout = spec.get("rollout") or {}
    if rollout.get("paused"):
        return Start(is_paused=True)
    windows = [
        Window(days=tuple(one["days"]), start=one["start"], duration_seconds=one["durationSeconds"], timezone=one["timezone"])
        for one in rollout.get("windows") or ()
    ]
    if not windows or now is None:
        return None
    drain_seconds = 0 if rollout["onBusy"] == OnBusy.FAIL else rollout["drainTimeoutSeconds"]
    position = locate(windows, now)
    if position.left_seconds >= VENDORS[spec.get("vendor", "nvidia")].window_seconds + drain_seconds:
        return None
    return Start(opens_at=position.opens_at, opening=position.opening)


def _ways(change: PoolChange, cluster: NodeMoves, moves: Sequence[Move]) -> Iterator[tuple[PoolSide | None, PoolSide]]:
    """Yield (what nodes were, None if not known; what they become)."""
    name, old, new = change.name, cluster.before.get(change.name), cluster.after.get(change.name)
    leaves = any(move.source == name and move.target is None for move in moves)
    if old is not None and (leaves or (new is None and not old.names)):
        yield old, exclusive(old)
    if new is None:
        return
    yield from ((cluster.before.get(move.source or ""), new) for move in moves if move.target == name)
    yield from ((cluster.before[gone], new) for gone, successor in cluster.successors.items() if successor == name)
    if change.change in {Change.RELABEL, Change.REPARTITION}:
        yield old, new
    if change.selector_changes or (change.change is Change.NEW and change.disturbed != 0):
        yield None, new


def _seconds(old: PoolSide | None, new: PoolSide) -> int:
    """Return the seconds for one node; 0 if only the pool's name changes."""
    if _divides(old, new):
        return new.vendor.layout_seconds
    if not new.vendor.is_made_whole and (old is None or old.layouts != new.layouts):
        return 0  # a person divides the GPUs
    if old is None:
        return _MODE_SECONDS
    if old.backend != new.backend:
        return _handover(old, new)
    if old.card == new.card and old.layouts == new.layouts:
        alike = (old.profile, old.resources, _labels(old)) == (new.profile, new.resources, _labels(new))
        alike = alike or not (new.profile or released(old))  # releasing whole GPUs affects no tenant
        return 0 if alike else _RELABEL_SECONDS
    return _LAYOUT_SECONDS if _modes(old) == _modes(new) else _MODE_SECONDS


def _handover(old: PoolSide, new: PoolSide) -> int:
    """Return the seconds for one node that gets another back end, which may be longer for another layout."""
    forgets = Backend(new.backend).has_claims and new.requests != Requests.CLAIMS
    seconds = _FORGET_SECONDS if forgets else backends.named(new.backend).handover_seconds
    return seconds if _modes(old) == _modes(new) else max(seconds, _MODE_SECONDS)


def _divides(old: PoolSide | None, new: PoolSide) -> bool:
    """Whether the vendor's own program is told to divide the GPUs of a node, which may have another label or none."""
    return new.manager_label is not None and (old is None or old.manager_label != new.manager_label)


def _labels(side: PoolSide) -> dict[str, Any]:
    return {key: values for key, values in side.labels.items() if key != POOL_LABEL}


def _modes(side: PoolSide) -> tuple[bool, ...]:
    """Return, for each GPU, whether MIG is enabled."""
    return tuple(any(device.profile is not None for device in gpu) for gpu in side.gpus)


def _at_once(most: int | str, nodes: int | None) -> int | None:
    """Return the number of rollout slots, as the node runtime counts them: a percentage is rounded down, at least one node."""
    if isinstance(most, int):
        return most
    return None if nodes is None else max(1, nodes * int(most.removesuffix("%")) // 100)
