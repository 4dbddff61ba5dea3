"""What installing a new bundle does to what runs now: pods by name, quotas in use, nodes that are not ready. Pure.

The solver that compares two bundles decides how many shares of a node a change removes; the pods that hold shares are named.
Which of a node's pods loses its device is decided on the node: at most `disturbed` of those listed do.
"""

from collections import Counter
from collections.abc import Iterator

from gpushare.cluster.live import live_pools, slices
from gpushare.cluster.live.belief import is_observed
from gpushare.cluster.live.live_pools import pool_of
from gpushare.cluster.live.objects import LiveNode, LiveQuota, Pod, ReadFailure, Snapshot
from gpushare.compare import snapshots
from gpushare.compare.bundles import policy, values
from gpushare.compare.files import Files
from gpushare.compare.nodes import GeometryOf, NodeMoves
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import OfferedDevice, PoolSide
from gpushare.offering import modes
from gpushare_node.contract.struct import NOTHING, Struct, replace


class NodeChange(Struct):
    """One node that changes. `pods` hold shares on it, of which at most `disturbed` are removed; None: not known.

    `before` and `after` are pools, empty for none. `on_busy` is what happens to the pods: wait, evict or fail.
    """

    name: str
    before: str
    after: str
    on_busy: str
    disturbed: int | None
    pods: tuple[Pod, ...]
    is_ready: bool
    state: str


class QuotaProblem(Struct):
    """What a namespace uses now, and the new limit that is below it; None: the resource exists no more."""

    namespace: str
    resource: str
    used: int
    limit: int | None


class Disturbance(Struct):
    """The whole effect. `nodes` change; `unready` do not change and are not ready now."""

    nodes: tuple[NodeChange, ...]
    unready: tuple[tuple[str, str], ...]
    quotas: tuple[QuotaProblem, ...]
    unseen: tuple[ReadFailure, ...]

    @property
    def is_empty(self) -> bool:
        """Whether no node changes and no quota is exceeded."""
        return not self.nodes and not self.quotas


def assess(bundle: Files, side: Side, snapshot: Snapshot, geometry_of: GeometryOf) -> Disturbance:
    """Return what the bundle would do. `side` is what it makes of a cluster. A bundle that observes changes no node."""
    after = side.pools
    terms = {name: entry.get("terms") for name, entry in (values(bundle).get("pools") or {}).items()}
    live = live_pools.find(snapshot)
    snapshot = slices.with_claims(snapshot, live)
    solver = NodeMoves(before={}, after=after, geometry_of=geometry_of)
    changed, unready = [], []
    touched = () if side.observes else sorted(snapshot.nodes, key=lambda node: node.name)
    for node in touched:
        # No policy has been applied to an observed node: its pool is where it would belong.
        old, new = "" if is_observed(node) else live.of_node.get(node.name, ""), pool_of(node, terms)
        new = new if new in after else ""
        before = live.pools[old].side if old else _untouched(node, after.get(new))
        if side.observes or (old == new and (not old or (before is not None and _same(before, after[new])))):
            if old and not _is_ready(node):
                unready.append((node.name, _state(node)))
            continue
        target = after.get(new) or (snapshots.exclusive(before) if before is not None else None)
        lost = None if before is None or target is None else solver.disturbed(before, target)
        on_busy = (policy(bundle, new).get("rollout") or {}).get("onBusy") or live.pools[old].on_busy if new or old else ""
        holding = _holding(snapshot, node) if lost != 0 else ()
        changed.append(
            NodeChange(
                name=node.name,
                before=old,
                after=new,
                on_busy=str(on_busy),
                disturbed=lost,
                pods=holding,
                is_ready=_is_ready(node),
                state=_state(node),
            )
        )
    limits = snapshot.has_seen("resourcequotas") and not side.observes
    problems = _quotas(side, snapshot) if limits else ()
    return Disturbance(nodes=tuple(changed), unready=tuple(unready), quotas=tuple(problems), unseen=snapshot.unseen)


def _untouched(node: LiveNode, new: PoolSide | None) -> PoolSide | None:
    """Return a node without a pool as it is: whole GPUs, or the same shares of whole GPUs as the pool's; else nothing is known.

    The control daemon of MPS restarts with its config, which ends every client, whatever the number of shares.
    """
    if new is None:
        return None
    name = new.vendor.whole_gpu
    whole = node.allocatable.get(name, 0)
    if dict(node.allocatable) == ({name: whole} if whole else {}):
        gpu = (OfferedDevice(resource=name, profile=None, start=0, replicas=1),)
        offers = {name: whole}
        return replace(new, mode="exclusive", profile="", gpus=(gpu,) * whole, resources=offers, labels=NOTHING)
    has_daemon = new.has_daemon or modes.named(node.labels.get(new.vendor.sharing_label, "")).has_daemon
    is_alike = dict(node.allocatable) == dict(new.resources) and not any(device.profile for gpu in new.gpus for device in gpu)
    return replace(new, profile="", labels=NOTHING) if is_alike and not has_daemon else None


def _same(one: PoolSide, other: PoolSide) -> bool:
    """Whether nodes need no change: card, layout and profile are equal. A policy without a profile is of no device plugin's."""
    profile = one.profile or other.profile
    return (one.card, one.layouts, profile, dict(one.resources)) == (
        other.card,
        other.layouts,
        other.profile,
        dict(other.resources),
    )


def _holding(snapshot: Snapshot, node: LiveNode) -> tuple[Pod, ...]:
    held = [pod for pod in snapshot.pods if pod.node == node.name and pod.holds]
    return tuple(sorted(held, key=lambda pod: pod.full_name))


def _is_ready(node: LiveNode) -> bool:
    return node.is_up and (node.condition is None or node.condition.is_true or is_observed(node))


def _state(node: LiveNode) -> str:
    if not node.is_up:
        return "kubelet is not Ready"
    if node.condition is None:
        return "no report of the node runtime"
    return "ready" if node.condition.is_true else f"{node.condition.reason}: {node.condition.message}"


def _quotas(side: Side, snapshot: Snapshot) -> Iterator[QuotaProblem]:
    """Yield what is in use beyond the new quotas, and quotas in use on resources that no pool offers any more."""
    wanted = side.quotas
    offered = {name for pool in side.pools.values() for name in pool.resources}
    for namespace, used in sorted(_used(snapshot.quotas).items()):
        for resource, number in sorted(used.items()):
            limit = wanted.get((namespace, resource))
            if number and resource not in offered:
                yield QuotaProblem(namespace=namespace, resource=resource, used=number, limit=None)
            elif limit is not None and number > limit:
                yield QuotaProblem(namespace=namespace, resource=resource, used=number, limit=limit)


def _used(quotas: tuple[LiveQuota, ...]) -> dict[str, Counter[str]]:
    """Return what the quotas count by namespace: several of one namespace count the same pods."""
    used: dict[str, Counter[str]] = {}
    for quota in quotas:
        used.setdefault(quota.namespace, Counter())
        used[quota.namespace] |= Counter(dict(quota.used))
    return used
