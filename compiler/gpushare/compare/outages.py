"""How long nodes are out of service, and how many at once: from the pool's rollout, and from measured times. Pure."""

from collections.abc import Mapping
from typing import Any

from gpushare.compare.changes import Change, Outage, PoolChange
from gpushare.compare.sides import PoolSide

_RELABEL_SECONDS = 5
"""From the taint to the new allocatable: 3.6 s (`python -m tests.bench.cluster_loop`), rounded up."""
_LAYOUT_SECONDS = 10
"""The same with instances to destroy and create. The driver's part is an estimate: GPUs are simulated in the measurement."""
_MODE_SECONDS = 60
"""The same with a change of MIG mode, which resets each GPU for up to half a minute; an estimate too."""


def outage(change: PoolChange, old: PoolSide | None, new: PoolSide | None, spec: Mapping[str, Any]) -> Outage | None:
    """What the change means for the pool's nodes; `spec` is the new policy's. None where none is touched."""
    rollout = spec.get("rollout") or {}
    if change.change not in {Change.RELABEL, Change.REPARTITION} or change.touched == 0 or not rollout:
        return None
    return Outage(
        pool=change.name,
        nodes=change.touched,
        at_once=_at_once(rollout["maxUnavailable"], change.nodes.after),
        seconds=_seconds(change, old, new),
        drain_seconds=rollout["drainTimeoutSeconds"],
        on_busy=rollout["onBusy"],
    )


def _seconds(change: PoolChange, old: PoolSide | None, new: PoolSide | None) -> int:
    if change.change is Change.RELABEL:
        return _RELABEL_SECONDS
    return _LAYOUT_SECONDS if _modes(old) == _modes(new) else _MODE_SECONDS


def _modes(side: PoolSide | None) -> tuple[bool, ...]:
    """Per GPU whether MIG is on."""
    return () if side is None else tuple(any(device.profile is not None for device in gpu) for gpu in side.gpus)


def _at_once(most: int | str, nodes: int | None) -> int | None:
    """As the node runtime counts its turns: a percentage is rounded down, and is one node at least."""
    if isinstance(most, int):
        return most
    return None if nodes is None else max(1, nodes * int(most.removesuffix("%")) // 100)
