"""How long nodes are out of service, and how many at once: from the pool's rollout, and from measured times. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from gpushare.compare.changes import Change, Move, Outage, PoolChange
from gpushare.compare.nodes import Cluster
from gpushare.compare.sides import PoolSide
from gpushare.selectors import POOL_LABEL

_RELABEL_SECONDS = 5
"""From the taint to the new allocatable: 3.6 s (`python -m tests.bench.cluster_loop`), rounded up."""
_LAYOUT_SECONDS = 10
"""The same with instances to destroy and create. The driver's part is an estimate: GPUs are simulated in the measurement."""
_MODE_SECONDS = 60
"""The same with a change of MIG mode, which resets each GPU for up to half a minute; an estimate too."""


def outage(change: PoolChange, cluster: Cluster, moves: Sequence[Move], spec: Mapping[str, Any]) -> Outage | None:
    """What the change means for nodes that become or stay the pool's; `spec` is its new policy's. None where none goes out.

    Nodes that go to no pool are not counted: no rollout paces them.
    """
    rollout, new = spec.get("rollout") or {}, cluster.after.get(change.name)
    if new is None or not rollout:
        return None
    sources = _sources(change, cluster, moves)
    seconds = max((_seconds(old, new) for old in sources), default=0)
    nodes = _nodes(change, cluster, moves)
    if not seconds or nodes == 0:
        return None
    return Outage(
        pool=change.name,
        nodes=nodes,
        at_once=_at_once(rollout["maxUnavailable"], change.nodes.after),
        seconds=seconds,
        drain_seconds=rollout["drainTimeoutSeconds"],
        on_busy=rollout["onBusy"],
    )


def _sources(change: PoolChange, cluster: Cluster, moves: Sequence[Move]) -> list[PoolSide | None]:
    """What the nodes were before; None where nobody knows."""
    name = change.name
    found: list[PoolSide | None] = [cluster.before.get(move.source or "") for move in moves if move.target == name]
    found += [cluster.before[gone] for gone, successor in cluster.successors.items() if successor == name]
    if change.change in {Change.RELABEL, Change.REPARTITION}:
        found.append(cluster.before[name])
    if change.selector_changes or (change.change is Change.NEW and change.disturbed != 0):
        found.append(None)
    return found


def _nodes(change: PoolChange, cluster: Cluster, moves: Sequence[Move]) -> int | None:
    if change.name in cluster.successors.values():
        return change.nodes.after
    released = sum(move.source == change.name and move.target is None for move in moves)
    return None if change.touched is None else change.touched - released


def _seconds(old: PoolSide | None, new: PoolSide) -> int:
    """For one node; 0 where nothing but the pool's name is another."""
    if old is None:
        return _MODE_SECONDS
    if old.card == new.card and old.layouts == new.layouts:
        alike = (old.profile, old.resources, _labels(old)) == (new.profile, new.resources, _labels(new))
        return 0 if alike else _RELABEL_SECONDS
    return _LAYOUT_SECONDS if _modes(old) == _modes(new) else _MODE_SECONDS


def _labels(side: PoolSide) -> dict[str, Any]:
    return {key: values for key, values in side.labels.items() if key != POOL_LABEL}


def _modes(side: PoolSide) -> tuple[bool, ...]:
    """Per GPU whether MIG is on."""
    return tuple(any(device.profile is not None for device in gpu) for gpu in side.gpus)


def _at_once(most: int | str, nodes: int | None) -> int | None:
    """As the node runtime counts its turns: a percentage is rounded down, and is one node at least."""
    if isinstance(most, int):
        return most
    return None if nodes is None else max(1, nodes * int(most.removesuffix("%")) // 100)
