"""Comparing two plans: what a change does to capacity, nodes, GPUs, running pods and quotas. Pure; exact where possible.

A side is an intent with the policies of its pools, of a committed bundle or as it would be. The MIG solver decides what stays
on a GPU, as in the node runtime. Numbers of disturbed pods are upper bounds: every share that a change removes
may be in use. Pods on nodes that no former pool had are not counted.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpushare.compare import affected, bundles, capacity, files, gpus, nodes
from gpushare.compare.changes import Amount, Change, Comparison, Move, PoolChange
from gpushare.compare.dra_effects import of_backends
from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import Files
from gpushare.compare.nodes import GeometryOf, NodeMoves
from gpushare.compare.outages import begins, outage, tainted
from gpushare.compare.sides import Side
from gpushare.compare.snapshots import PoolSide
from gpushare.core.units import total
from gpushare.resolved.plan import VmPool
from gpushare_node.contract.struct import replace

__all__ = ["compare"]


def compare(
    old: Side,
    new: Side,
    geometry_of: GeometryOf,
    texts: tuple[Files, Files] = ({}, {}),
    now: float | None = None,
) -> Comparison:
    """Return what happens if `new` replaces `old`, `texts` are all files of both bundles.

    `now`, in seconds since 1970, is for the next opening of windows.
    """
    changed = files.changes(*texts)
    before = old.effective
    after = before if new.observes else new.pools
    terms = [bundles.terms(side) for side in texts]
    same = frozenset(name for name, term in terms[0].items() if terms[1].get(name) == term)
    is_adopted = old.observes and not new.observes
    cluster = NodeMoves(before=before, after=after, geometry_of=geometry_of, same_terms=same, is_adopted=is_adopted)
    moves = cluster.moves()
    changes = tuple(_pool(name, cluster, moves) for name in sorted(before.keys() | after.keys()))
    spec = {one.name: bundles.policy(texts[1], one.name) or bundles.policy(texts[0], one.name) for one in changes}
    outages = [outage(one, cluster, moves, spec[one.name], now) for one in changes]
    taints = [one for one in (tainted(change, cluster, moves) for change in changes) if one is not None]
    begun = _begun(texts, changes, cluster, moves, now)
    quotas = capacity.quotas(old.quotas, new.quotas, before, after)
    left = frozenset(move.source for move in moves if move.source and move.target is None)
    found = affected.effects(*texts, changed, cluster.successors, left)
    return Comparison(
        pools=tuple(_uncounted(one) if begun.keys() & {one.name, one.successor} else one for one in changes),
        capacity=capacity.capacity(before, after),
        moves=moves,
        quotas=quotas,
        mig_strategies=(old.mig_strategy, new.mig_strategy),
        files=changed,
        effects=(
            *begun.values(),
            *taints,
            *of_backends(before, after, cluster.successors),
            *found,
            *_of_vms(old, new),
            *capacity.refusing(quotas),
        ),
        outages=tuple(one for one in outages if one is not None),
        costs=capacity.costs(old, new),
    )


def _of_vms(old: Side, new: Side) -> Iterator[Effect]:
    """Yield the effects on pools for virtual machines, whose nodes a person labels."""
    sides: list[Mapping[str, VmPool]] = [{} if side.observes else side.vm_pools for side in (old, new)]
    for name in sorted(sides[0].keys() | sides[1].keys()):
        before, after = (side.get(name) for side in sides)
        if before and after and before.config.name == after.config.name:
            continue
        is_alike = before is not None and after is not None and before.kind.name == after.kind.name
        shown = [one and (one.config.name if is_alike else one.kind.name) for one in (before, after)]
        yield Effect(kind=EffectKind.VMS, pool=None, subject=f"vGPUs of pool {name}", before=shown[0], after=shown[1])


def _begun(
    texts: tuple[Files, Files], changes: Iterable[PoolChange], cluster: NodeMoves, moves: Sequence[Move], now: float | None
) -> dict[str, Effect]:
    """Return by pool that changes which nodes hold back may begin, where otherwise no pod is disturbed.

    A node that changes pools meets the settings of its new pool.
    """
    quiet = {one.name for one in changes if one.disturbed == 0}
    pairs = {(name, cluster.successors.get(name, name)) for name in quiet}
    pairs |= {(move.source, move.target) for move in moves if move.source and move.target in quiet}
    found = (begins(new, bundles.policy(texts[0], old), bundles.policy(texts[1], new), now) for old, new in sorted(pairs))
    return {one.pool: one for one in found if one is not None and one.pool is not None}


def _uncounted(change: PoolChange) -> PoolChange:
    """Return the change without numbers that are wrong where nodes begin what they held back: how much that is is not known."""
    touched = change.touched if change.change is Change.NEW else change.touched or None
    return replace(change, touched=touched, disturbed=change.disturbed or None)


def _pool(name: str, cluster: NodeMoves, moves: Sequence[Move]) -> PoolChange:
    if name not in cluster.before:
        return _arrives(name, cluster, moves)
    if name not in cluster.after:
        return _goes(name, cluster, moves)
    return _stays(name, cluster, moves)


def _stays(name: str, cluster: NodeMoves, moves: Sequence[Move]) -> PoolChange:
    old, new = cluster.before[name], cluster.after[name]
    change, per_node = _kind(old, new), cluster.disturbed(old, new)
    reordered = cluster.reordered(name)
    selector_changes = reordered or (old.selector != new.selector and not (old.names and new.names))
    staying = len(old.names & new.names) if old.names and new.names else old.count
    worst = old.shares if selector_changes else per_node  # a node that leaves may go to any pool
    moving = [move.disturbed for move in moves if move.source == name or (move.source is None and move.target == name)]
    acts = change in {Change.RELABEL, Change.REPARTITION}
    geometry = cluster.geometry_of(new.card) if old.card == new.card else None
    return PoolChange(
        name=name,
        change=Change.POLICY if reordered and change is Change.NONE else change,
        cards=(old.card, new.card),
        nodes=Amount(before=old.count, after=new.count),
        resources=capacity.resources(old, new),
        gpus=gpus.changes(old.gpus, new.gpus, geometry) if acts else (),
        disturbed_per_node=per_node,
        disturbed=total([_times(worst, staying), *moving]),
        touched=None if selector_changes else total([_times(int(acts), staying), _settled(name, moves)]),
        selector_changes=selector_changes,
        caps=gpus.caps(old, new),
        actions=gpus.actions(old, new),
    )


def _arrives(name: str, cluster: NodeMoves, moves: Sequence[Move]) -> PoolChange:
    """Return the change of a new pool. Pods are counted as far as the former plan knows where its nodes come from."""
    new = cluster.after[name]
    inherits = name in cluster.successors.values()
    joining = [move.disturbed for move in moves if move.target == name and move.source is None]
    taken = 0 if inherits else None if cluster.is_adopted else _times(cluster.worst(new, cluster.outranked(name)), new.count)
    return PoolChange(
        name=name,
        change=Change.NEW,
        cards=(None, new.card),
        nodes=Amount(before=0, after=new.count),
        resources=capacity.resources(None, new),
        gpus=gpus.changes((), new.gpus, None),
        disturbed=total([taken, *joining]),
        touched=0 if inherits else new.count,
        caps=gpus.caps(None, new),
        actions=gpus.actions(None, new),
    )


def _goes(name: str, cluster: NodeMoves, moves: Sequence[Move]) -> PoolChange:
    """Return the change of a removed pool: its nodes go to its successor, to pools that name them, or back to whole GPUs."""
    old, successor = cluster.before[name], cluster.successors.get(name)
    if successor is not None:
        per_node = cluster.disturbed(old, cluster.after[successor])
    else:
        per_node = old.shares if old.card in cluster.claimed_cards else nodes.released(old)
    leaving = [move.disturbed for move in moves if move.source == name]
    return PoolChange(
        name=name,
        change=Change.GONE,
        cards=(old.card, None),
        nodes=Amount(before=old.count, after=0),
        resources=capacity.resources(old, None),
        disturbed_per_node=per_node,
        disturbed=sum(leaving) if leaving else _times(per_node, old.count),
        touched=_settled(name, moves) if leaving else old.count,
        successor=successor,
        caps=gpus.caps(old, None),
        actions=gpus.actions(old, None),
    )


def _settled(name: str, moves: Sequence[Move]) -> int:
    """Return how many moving nodes are counted with this pool: those that join it, and those that leave it for no pool."""
    return sum(move.target == name or (move.source == name and move.target is None) for move in moves)


def _kind(old: PoolSide, new: PoolSide) -> Change:
    """Return the most disruptive difference."""
    if old.card != new.card or old.layouts != new.layouts:
        return Change.REPARTITION
    if (old.profile, old.resources, old.labels) != (new.profile, new.resources, new.labels):
        return Change.RELABEL
    return Change.NONE if old.policy == new.policy else Change.POLICY


def _times(per_node: int, count: int | None) -> int | None:
    """Return the product; 0 for no effect on any number of nodes, None for an effect on an unknown number of nodes."""
    return 0 if per_node == 0 else None if count is None else per_node * count


def only(comparison: Comparison, names: Iterable[str]) -> Comparison:
    """Return the comparison with the named pools alone.

    Capacity is that of these pools, quotas are those on their resources, files and settings those that are theirs alone.
    Effects on the whole cluster stay, because they concern every pool.
    """
    chosen = frozenset(names)
    pools = tuple(pool for pool in comparison.pools if pool.name in chosen)
    totals = _offered(pools)
    offered = {name for name, _ in totals}
    quotas = tuple(one for one in comparison.quotas if one.resource in offered)
    foreign = list(capacity.refusing(one for one in comparison.quotas if one.resource not in offered))
    paths = {f"{bundles.POLICIES}{name}.yaml" for name in chosen}
    return replace(
        comparison,
        pools=pools,
        capacity=totals,
        moves=tuple(one for one in comparison.moves if one.source in chosen or one.target in chosen),
        quotas=quotas,
        files=tuple(one for one in comparison.files if one.path in paths),
        effects=tuple(one for one in comparison.effects if one.pool in {None, *chosen} and one not in foreign),
        outages=tuple(one for one in comparison.outages if one.pool in chosen),
        costs=comparison.costs
        and replace(comparison.costs, pools=tuple(one for one in comparison.costs.pools if one.pool in chosen)),
        intent=tuple(one for one in comparison.intent if one.path[:2] == ("spec", "pools") and one.path[2] in chosen),
    )


def _offered(pools: Iterable[PoolChange]) -> tuple[tuple[str, Amount], ...]:
    """Return what the pools offer together, sorted by resource."""
    totals: dict[str, list[Amount]] = {}
    for resource in (one for pool in pools for one in pool.resources):
        totals.setdefault(resource.name, []).append(resource.total)
    return tuple(
        (name, Amount(before=total(one.before for one in each), after=total(one.after for one in each)))
        for name, each in sorted(totals.items())
    )
