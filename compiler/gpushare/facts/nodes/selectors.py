"""Which nodes belong to which pool: satisfiable selectors, overlaps of pools, and the node affinity of a pool's DaemonSet.

Exact and pure; makes no findings. A node belongs to a pool if the pool's labels match it, if either the pool names it, or the
pool names no nodes and no pool names this one, and if it does not belong to a pool of higher priority.

Sets of nodes are exact: what one label may be (LabelSet), and conjunctions over several labels (Region), with the semantics of
Kubernetes node affinity. A label is assumed to have infinitely many values.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, assert_never

from gpushare.intent.types import Expression, NodeSelector, Operator, Pool
from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.struct import Struct


class LabelSet(Struct):
    """What a node's label may be: absent, one of `listed`, or, if `others` is true, every value that is *not* listed.

    Every set that label expressions can build has exactly one such form, so equal sets are equal values.
    """

    absent: bool
    others: bool
    listed: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        """Whether no node can satisfy this."""
        return not (self.absent or self.others or self.listed)

    @property
    def pinned(self) -> bool:
        """Whether the label must be one of finitely many values."""
        return not (self.absent or self.others)

    def meet(self, other: "LabelSet") -> "LabelSet":
        """Return the set of what satisfies both."""
        if self.others and other.others:
            listed = self.listed | other.listed
        elif self.others:
            listed = other.listed - self.listed
        elif other.others:
            listed = self.listed - other.listed
        else:
            listed = self.listed & other.listed
        return LabelSet(absent=self.absent and other.absent, others=self.others and other.others, listed=listed)

    def complement(self) -> "LabelSet":
        """Return the set of what does not satisfy this."""
        return LabelSet(absent=not self.absent, others=not self.others, listed=self.listed)


Region = Mapping[str, LabelSet]
"""A conjunction: nodes whose labels satisfy every entry. Keys that are not named may be anything. Never empty as a set."""

ANY = LabelSet(absent=True, others=True)


def values_of(expression: Expression) -> LabelSet:
    """Return what one expression allows. NotIn matches nodes without the label, as in Kubernetes."""
    match expression.operator:
        case Operator.IN:
            return LabelSet(absent=False, others=False, listed=frozenset(expression.values))
        case Operator.NOT_IN:
            return LabelSet(absent=True, others=True, listed=frozenset(expression.values))
        case Operator.EXISTS:
            return LabelSet(absent=False, others=True)
        case Operator.DOES_NOT_EXIST:
            return LabelSet(absent=True, others=False)
        case _:
            assert_never(expression.operator)


def conjunction(parts: Iterable[tuple[str, LabelSet]]) -> Region | None:
    """Return the conjunction of `parts`; None if no node can satisfy all of them."""
    region: dict[str, LabelSet] = {}
    excluded: dict[str, set[str]] = {}
    for key, values in parts:
        if values.absent and values.others:  # collected first: one by one, a thousand NotIn of one key copy a million values
            excluded.setdefault(key, set()).update(values.listed)
        else:
            region[key] = region.get(key, ANY).meet(values)
    for key, listed in excluded.items():
        region[key] = region.get(key, ANY).meet(LabelSet(absent=True, others=True, listed=frozenset(listed)))
    return None if any(values.empty for values in region.values()) else region


def meets(one: Region, other: Region) -> bool:
    """Whether a node can be in both."""
    few, many = (one, other) if len(one) <= len(other) else (other, one)
    return not any(key in many and many[key].meet(values).empty for key, values in few.items())


def subtract(region: Region, other: Region) -> tuple[Region, ...]:
    """Return the part of `region` outside `other`, as regions that together cover it (they may overlap each other)."""
    if not meets(region, other):
        return (region,)
    return tuple(
        {**region, key: piece}
        for key, values in other.items()
        for piece in _expressible(region.get(key, ANY).meet(values.complement()))
    )


def without_covered(regions: Iterable[Region]) -> tuple[Region, ...]:
    """Return the regions without those that lie inside another one; of equal regions the first is kept."""
    kept: list[Region] = []
    for region in regions:
        if not any(_inside(region, other) for other in kept):
            kept = [other for other in kept if not _inside(other, region)]
            kept.append(region)
    return tuple(kept)


def requirements(region: Region) -> list[dict[str, Any]]:
    """Return the region as `matchExpressions` of a nodeSelectorTerm, keys and values sorted."""
    return [requirement for key in sorted(region) for requirement in _label_requirements(key, region[key])]


def _inside(region: Region, other: Region) -> bool:
    return all(region.get(key, ANY).meet(values) == region.get(key, ANY) for key, values in other.items())


def _expressible(values: LabelSet) -> Iterator[LabelSet]:
    """Yield two sets for `absent or one of …`, which is not a conjunction of Kubernetes expressions; else the set itself."""
    if values.absent and not values.others and values.listed:
        yield LabelSet(absent=True, others=False)
        yield LabelSet(absent=False, others=False, listed=values.listed)
    elif not values.empty:
        yield values


def _label_requirements(key: str, values: LabelSet) -> Iterator[dict[str, Any]]:
    if values.pinned:
        yield {"key": key, "operator": Operator.IN.value, "values": sorted(values.listed)}
        return
    if not values.others:
        yield {"key": key, "operator": Operator.DOES_NOT_EXIST.value}
        return
    if not values.absent:
        yield {"key": key, "operator": Operator.EXISTS.value}
    if values.listed:
        yield {"key": key, "operator": Operator.NOT_IN.value, "values": sorted(values.listed)}


MAX_ALTERNATIVES = 64
"""How many terms the negation of pools with higher priority may need. The scheduler checks every term on every node."""

MAX_WORK = 40_000
"""Subtractions of a higher-priority pool from an alternative, plus half the comparisons, over all pools: about a second."""

MAX_LEAVING_NAMES = 256
"""How many nodes named by other pools are excluded from a pool whose label they still have; more would cost pools × names."""


def region_of(selector: NodeSelector) -> Region | None:
    """Return what the selector requires of labels, without names; None if no node can satisfy it."""
    exact = ((key, LabelSet(absent=False, others=False, listed=frozenset((value,)))) for key, value in selector.match_labels)
    return conjunction(chain(exact, ((e.key, values_of(e)) for e in selector.match_expressions)))


def clashes(pools: Sequence[Pool]) -> Iterator[tuple[Pool, Pool]]:
    """Yield every pair of pools of equal priority that can have the same node: (earlier, later), in the order of the later."""
    seen: dict[tuple[int, bool], _Seen] = {}
    for pool in pools:
        own = region_of(pool.nodes)
        if own is None:
            continue
        peers = seen.setdefault((pool.priority, bool(pool.nodes.names)), _Seen())
        yield from ((earlier, pool) for earlier in peers.overlapping(pool, own))
        peers.add(pool, own)


class _Seen:
    """An index of pools, by the node names that they list and by the label values that they require.

    Pools usually differ in the value of one label, so a pool is compared only with those that require its own value of the
    label that tells it apart from most, or do not pin that label. Pools are numbered as they are added.
    """

    def __init__(self) -> None:
        self._pools: list[tuple[Pool, Region]] = []
        self._by_name: dict[str, list[int]] = {}
        self._by_value: dict[tuple[str, str], set[int]] = {}
        self._pinning: dict[str, set[int]] = {}

    def add(self, pool: Pool, own: Region) -> None:
        number = len(self._pools)
        self._pools.append((pool, own))
        for name in dict.fromkeys(pool.nodes.names):
            self._by_name.setdefault(name, []).append(number)
        for key, values in own.items():
            if values.pinned:
                self._pinning.setdefault(key, set()).add(number)
                for value in values.listed:
                    self._by_value.setdefault((key, value), set()).add(number)

    def overlapping(self, pool: Pool, own: Region) -> Iterator[Pool]:
        """Yield the pools that can have a node of `pool`, in the order in which they were added."""
        for number in self._candidates(pool, own):
            other, theirs = self._pools[number]
            if meets(own, theirs):
                yield other

    def _candidates(self, pool: Pool, own: Region) -> list[int]:
        if pool.nodes.names:
            return sorted({number for name in pool.nodes.names for number in self._by_name.get(name, ())})
        pinned = [key for key, values in own.items() if values.pinned]
        if not pinned:
            return list(range(len(self._pools)))
        key = min(pinned, key=lambda key: self._number_meeting(key, own[key].listed))
        found = set().union(*(self._by_value.get((key, value), ()) for value in own[key].listed))
        pinning = self._pinning.get(key, set())
        if len(pinning) < len(self._pools):
            found |= set(range(len(self._pools))) - pinning
        return sorted(found)

    def _number_meeting(self, key: str, values: Iterable[str]) -> int:
        """Return how many pools require one of the values of the label, or do not pin it."""
        alike = sum(len(self._by_value.get((key, value), ())) for value in values)
        return alike + len(self._pools) - len(self._pinning.get(key, ()))


class NodeAssignment:
    """The nodes of each pool of one intent, without those of pools of higher priority and of pools that name nodes."""

    def __init__(self, pools: Sequence[Pool]) -> None:
        self._regions = {pool.name: region_of(pool.nodes) for pool in pools}
        self._naming: dict[str, list[Pool]] = {}
        for pool in pools:
            for name in dict.fromkeys(pool.nodes.names):
                self._naming.setdefault(name, []).append(pool)
        self._name_bytes = sum(len(name) for name in self._naming)
        self._work = 0
        self._owned: dict[str, tuple[tuple[str | None, Region], ...] | None] = {}
        self._left = self._by_priority([pool for pool in pools if not pool.nodes.names])

    def _by_priority(self, pools: Sequence[Pool]) -> dict[str, tuple[Region, ...] | None]:
        """Return, for each pool without names, the part that pools of higher priority leave."""
        left: dict[str, tuple[Region, ...] | None] = {}
        seen, waiting = _Seen(), list[tuple[Pool, Region]]()
        for pool in sorted(pools, key=lambda pool: -pool.priority):
            own = self._regions[pool.name]
            if own is None:
                continue
            if waiting and waiting[0][0].priority != pool.priority:
                for peer in waiting:
                    seen.add(*peer)
                waiting = []
            left[pool.name] = self._less(own, (self._known(other) for other in seen.overlapping(pool, own)))
            waiting.append((pool, own))
        return left

    def _known(self, pool: Pool) -> Region:
        own = self._regions[pool.name]
        return {} if own is None else own

    def _less(self, own: Region, taken: Iterable[Region]) -> tuple[Region, ...] | None:
        """Return what is left of a region; None for more than MAX_ALTERNATIVES pieces. Stops reading `taken` if nothing is."""
        left: tuple[Region, ...] = (own,)
        for other in taken:
            cut = [part for piece in left for part in subtract(piece, other)]
            self._work += len(left) + len(cut) ** 2 // 2
            left = without_covered(cut)
            if not left:
                break
            if len(left) > MAX_ALTERNATIVES or self._work > MAX_WORK:
                return None
        return left

    def owned(self, pool: Pool) -> tuple[tuple[str | None, Region], ...] | None:
        """Return the pool's nodes as (node name or None for any unnamed one, labels); None if that needs too many terms.

        The empty tuple means that the pool can have no node: no node satisfies its selector, or other pools take them all.
        """
        if pool.name not in self._owned:
            self._owned[pool.name] = self._pieces(pool)
        return self._owned[pool.name]

    def _pieces(self, pool: Pool) -> tuple[tuple[str | None, Region], ...] | None:
        own = self._regions[pool.name]
        if own is None:
            return ()
        if not pool.nodes.names:
            left = self._left[pool.name]
            return None if left is None else tuple((None, piece) for piece in left)
        pieces: list[tuple[str | None, Region]] = []
        for name in dict.fromkeys(pool.nodes.names):
            rivals = [other for other in self._naming[name] if other.priority > pool.priority]
            taken = [theirs for other in rivals if (theirs := self._regions[other.name]) is not None]
            left = self._less(own, taken) if taken else (own,)
            if left is None:
                return None
            pieces += ((name, piece) for piece in left)
        return tuple(pieces)

    def foreign_bytes(self, pool: Pool, each: int) -> int:
        """Return the bytes that exclude nodes named by other pools, in all terms: each name's length plus `each`.

        A pool that names its own nodes excludes others' only from the term for nodes that still have its label.
        """
        own = set(pool.nodes.names)
        foreign = len(self._naming) - len(own)
        once = self._name_bytes + each * foreign - sum(map(len, own))
        from_leaving = once if foreign <= MAX_LEAVING_NAMES else 0
        return from_leaving if own else from_leaving + once * len(self.owned(pool) or ())

    def terms(self, pool: Pool) -> tuple[Mapping[str, Any], ...]:
        """Return the nodeSelectorTerms of the pool's DaemonSet: the nodes it owns, and those that still have its label.

        The second kind is needed to release a node that left. Nodes that another pool names are in neither, if these names are
        few: among thousands, a node that moved keeps its old label until the node runtime has handed it over, like every node
        whose labels move it to another pool. Only `matchFields` selects by name, with one value each (the API server rejects
        more): on some clouds kubernetes.io/hostname differs from the node's name, and would not exclude a named node. Never
        fails if `owned` is not None.
        """
        leaving = {"key": POOL_LABEL, "operator": "In", "values": [pool.name]}
        own = self.owned(pool) or ()
        few = len(self._naming) - len(set(pool.nodes.names)) <= MAX_LEAVING_NAMES
        foreign = self._foreign(pool) if few or not pool.nodes.names else []
        owned = ((requirements(piece), [_field("In", name)] if name else foreign) for name, piece in own)
        return (*(_term(expressions, fields) for expressions, fields in owned), _term([leaving], foreign if few else []))

    def _foreign(self, pool: Pool) -> list[dict[str, Any]]:
        """Return one requirement for each node that other pools name and this one does not."""
        named = set(pool.nodes.names)
        return [entry for entry in self._excluded if entry["values"][0] not in named] if named else self._excluded

    @cached_property
    def _excluded(self) -> list[dict[str, Any]]:
        """One requirement for each name, computed if needed: a single pool that names thousands of nodes never needs it."""
        return [_field("NotIn", name) for name in sorted(self._naming)]


def _field(operator: str, name: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": operator, "values": [name]}


def _term(expressions: list[dict[str, Any]], fields: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: part for key, part in (("matchExpressions", expressions), ("matchFields", fields)) if part}
