"""The search of pools that share pods: which sets of divisions are tried, in which order, and what is proven of the rest."""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappop, heappush
from math import ceil, comb, inf

from gpushare.core.units import MIB
from gpushare.simulation import counting
from gpushare.simulation.choice import Chooser
from gpushare.simulation.counting import EPSILON, Item, PodKind
from gpushare.simulation.found import Candidate
from gpushare.simulation.known import Known
from gpushare.simulation.supply import PoolSupply, Supply
from gpushare.simulation.trials import Subset, Trials
from gpushare.workload.requests import PodRequest
from gpushare_node.contract.struct import Struct, replace

MAX_SUBSETS = 5_000
"""How many sets of divisions are compared by their bounds; of more, only those that extend the best smaller ones."""

MIN_EVALUATIONS, MAX_EVALUATIONS = 8, 500

MAX_COUNTED = 1_000
"""For how many sets of divisions the pods of each pool are counted."""

MAX_VECTORS = 2_000
"""How many numbers of nodes of one set of divisions are considered one by one."""

_ALTERNATIVES = 4
"""How many candidates are tried that are not the best by their bounds, but have other isolation or fewer pools."""

_WIDTH = 10
"""How many sets of divisions are extended, where not all are compared."""

_Load = dict[tuple[tuple[int, ...], str], Counter[int]]
"""What pods request: by the pools that may serve them and the resource, how many pods request how much of it."""


class _Counted(Struct):
    """A set of divisions, and what is known of it before the engine is asked: `key` is (least cost, isolation, pools)."""

    key: tuple[float, ...]
    subset: Subset
    least: tuple[int, ...]
    has_choice: bool


class Part:
    """The search of pools that share pods."""

    def __init__(self, known: Known, origins: tuple[str, ...]) -> None:
        self._known, self._origins = known, origins
        asked = [(pod, kind) for pod, kind in zip(known.workload.pods, known.kinds, strict=True) if kind.origins & set(origins)]
        found, self._is_complete = known.items(origins, {kind for _, kind in asked})
        samples = {kind: pod for pod, kind in reversed(asked)}
        servable = {kind for item in found for kind in _servable(item, samples)}
        served = [(pod, kind) for pod, kind in asked if kind in servable]
        self.unserved = len(asked) - len(served)
        self._pods = tuple(pod for pod, _ in served)
        self._moments = counting.moments(self._pods, [kind for _, kind in served])
        self._samples = samples
        self._items = _undominated(found, self._moments.kinds)
        self._trials = Trials(known, origins, self._items, self._pods)
        in_all_ways = any(len(item.slots) > 1 for item in self._items)
        self._prices = [counting.prices(item, self._moments.kinds, in_all_ways=in_all_ways) for item in self._items]
        costs = {item.cost for item in self._items}
        self._node_cost = next(iter(costs)) if len(costs) == 1 else None
        self._most = min(max(known.constraints.budget // max(len(self._pods), 1), MIN_EVALUATIONS), MAX_EVALUATIONS)
        self._is_enumerated = True
        self._tried: dict[Subset, Candidate] = {}
        self._has_choice: dict[Subset, _Counted] = {}
        self.lower_bound, self.is_exact = 0.0, True

    def answer(self) -> list[Candidate]:
        """Return the best candidate of each isolation and number of pools. Sets `lower_bound` and `is_exact`."""
        if not self._pods:
            return []
        left = self._best_first()
        ranked = sorted(self._tried.values(), key=lambda one: one.rank)
        if not ranked:
            return []
        left += self._refined(ranked)
        ranked.sort(key=lambda one: one.rank)
        best = ranked[0]
        self.lower_bound = min([*left, *([best.cost] if best.serves else [])], default=0.0)
        if not self._is_enumerated or not self._is_complete or not best.serves:
            self.lower_bound = self._relaxed()
        self.is_exact = best.serves and best.cost <= self.lower_bound + EPSILON
        different: dict[tuple[float, ...], Candidate] = {}
        for one in ranked:
            different.setdefault((one.serves, *_key(one)[1:]), one)
        return list(different.values())

    def _best_first(self) -> list[float]:
        """Try sets of divisions, those of the least cost by their bounds first, until no other can be better.

        Returns a bound for those that were left over for want of budget. Then it tries the most promising of each number of
        pools and of each isolation, so that there are alternatives.
        """
        coming = deque(sorted(self._subsets()))
        counted: list[tuple[tuple[float, ...], int, _Counted]] = []
        others: dict[tuple[float, ...], _Counted] = {}
        left: list[float] = []
        best: tuple[float, ...] | None = None
        number = 0
        while coming or counted:
            while coming and (not counted or coming[0][0] <= counted[0][0]):
                key, subset = coming.popleft()
                number += 1
                one = (
                    self._counted(subset, key)
                    if number <= MAX_COUNTED
                    else _Counted(key=key, subset=subset, least=(), has_choice=True)
                )
                if one is not None:
                    heappush(counted, (one.key, number, one))
            if not counted:
                break
            key, _, one = counted[0]
            if best is not None and key >= best:
                break
            if self._trials.evaluations >= self._most:
                left.append(key[0])
                break
            heappop(counted)
            found = self._try(one)
            if found.serves and (best is None or _key(found) < best):
                best = _key(found)
        for _, _, one in sorted(counted):
            others.setdefault(one.key[1:], one)
        for one in list(others.values())[:_ALTERNATIVES]:
            if self._trials.evaluations < self._most:
                self._try(one)
        return left

    def _subsets(self) -> list[tuple[tuple[float, ...], Subset]]:
        """Return the sets of divisions that serve all pods, each with what it costs at least, its isolation and its size."""
        most = self._known.constraints.max_pools * len(self._origins)
        number = sum(comb(len(self._items), size) for size in range(1, most + 1))
        self._is_enumerated = number <= MAX_SUBSETS
        found: list[tuple[tuple[float, ...], Subset]] = []
        level: list[tuple[Subset, counting.Prices]] = [((), ())]
        for _ in range(most):
            grown = [
                ((*subset, index), counting.cheapest(paid, own) if subset else own)
                for subset, paid in level
                for index, own in enumerate(self._prices)
                if (not subset or index > subset[-1] or not self._is_enumerated)
                and index not in subset
                and self._may_join(subset, index)
            ]
            level = list({tuple(sorted(subset)): paid for subset, paid in grown}.items())
            least = [counting.bound(paid, self._moments, self._node_cost) for _, paid in level]
            found += [
                ((cost, *self._trials.isolation(subset), len(subset)), subset)
                for cost, (subset, _) in zip(least, level, strict=True)
                if cost < inf
            ]
            if not self._is_enumerated:
                level = sorted(level, key=lambda one: counting.served_bound(one[1], self._moments))[:_WIDTH]
        return found

    def _may_join(self, subset: Subset, index: int) -> bool:
        origin = self._items[index].origin
        return sum(self._items[other].origin == origin for other in subset) < self._known.constraints.max_pools

    @property
    def evaluations(self) -> int:
        """How often the engine was asked."""
        return self._trials.evaluations

    def _try(self, one: _Counted) -> Candidate:
        self._has_choice[one.subset] = one
        self._tried[one.subset] = self._trials.tried(one.subset)
        return self._tried[one.subset]

    def _counted(self, subset: Subset, key: tuple[float, ...]) -> _Counted | None:
        """Return how many nodes the pods need that choose as the engine has them choose; None if a pool gets none of them."""
        items, names = [self._items[index] for index in subset], self._trials.names(subset)
        pools = [replace(item.supply, name=name) for item, name in zip(items, names, strict=True)]
        order = sorted(range(len(pools)), key=lambda place: names[place])
        offered = Supply(pools=tuple(pools[place] for place in order), quotas={})
        chooser = Chooser(offered)
        per_node = [_per_node(pool) for pool in pools]
        targets: list[tuple[tuple[int, ...], str, int]] = []
        for kind in self._moments.kinds:
            target = chooser.choose(self._trials.renamed(self._samples[kind], subset, names))
            if isinstance(target, str):
                return None
            targets.append((tuple(order[place] for place in target.pools), target.resource, target.amount))
        if {place for where, _, _ in targets for place in where} != set(range(len(items))):
            return None
        least, missing = [0] * len(items), 0.0
        loads = [_loads(targets, now) for now in self._moments.pods]
        for load in loads:
            for (where, resource), amounts in load.items():
                if len(where) == 1:
                    least[where[0]] = max(least[where[0]], counting.packed(amounts, per_node[where[0]][resource]))
        for load in loads:
            for where, resource in load:
                if len(where) > 1:
                    missing = max(
                        missing,
                        _missing(
                            load,
                            (where, resource),
                            least,
                            [(item.cost, each) for item, each in zip(items, per_node, strict=True)],
                        ),
                    )
        cost = sum(item.cost * nodes for item, nodes in zip(items, least, strict=True)) + missing
        has_choice = any(len(where) > 1 or amount > 1 for where, _, amount in targets)
        return _Counted(key=(max(cost, key[0]), *key[1:]), subset=subset, least=tuple(least), has_choice=has_choice)

    def _refined(self, ranked: list[Candidate]) -> list[float]:
        """Look for fewer nodes where the counted least of a set is below the best cost, because pods have a choice of pools.

        Returns bounds for the sets of which not all numbers of nodes were tried. Adds what it finds.
        """
        left = []
        for one in sorted(self._has_choice.values(), key=lambda one: one.key):
            best = ranked[0]
            below = best.cost if best.serves else self._known.limit_cost(self._items[index] for index in one.subset)
            if one.key[0] >= below - EPSILON or not one.has_choice:
                continue
            vectors = self._vectors(one, below)
            if vectors is None or self._trials.evaluations + len(vectors) > self._most:
                left.append(one.key[0])
                continue
            for counts in vectors:
                candidate, _ = self._trials.fixed(one.subset, counts)
                if candidate.serves:
                    ranked.insert(0, candidate)
                    break
        return left

    def _vectors(self, one: _Counted, below: float) -> list[tuple[int, ...]] | None:
        """Return the numbers of nodes that cost less, the cheapest first; None if there are too many."""
        items = [self._items[index] for index in one.subset]
        if not one.least:
            return None
        found: list[tuple[int, ...]] = [()]
        rest = [
            sum(item.cost * nodes for item, nodes in zip(items[place:], one.least[place:], strict=True))
            for place in range(len(items) + 1)
        ]
        for place, item in enumerate(items):
            grown = []
            for counts in found:
                spent = sum(each.cost * nodes for each, nodes in zip(items, counts, strict=False))
                nodes = one.least[place]
                while spent + item.cost * nodes + rest[place + 1] < below - EPSILON:
                    grown.append((*counts, nodes))
                    nodes += 1
                    if len(grown) > MAX_VECTORS:
                        return None
            found = grown
        priced = [
            (sum(item.cost * nodes for item, nodes in zip(items, counts, strict=True)), counts)
            for counts in found
            if all(counts)
        ]
        return [
            counts
            for cost, counts in sorted(priced)
            if cost >= one.key[0] - EPSILON and self._trials.within_limits(one.subset, counts) == counts
        ]

    def _relaxed(self) -> float:
        """Return what no way to divide the cards costs less than: of each pod the part of a GPU that it asks for."""
        by_origin = {item.origin: item for item in self._items}
        price = min(item.cost / item.supply.gpus_per_node for item in by_origin.values())
        least = 0.0
        for now in self._moments.pods:
            asked = Counter[int]()
            for kind, pods in zip(self._moments.kinds, now, strict=True):
                asked[min(_parts(kind, by_origin[origin]) for origin in kind.origins if origin in by_origin)] += pods
            volume = sum(amount * pods for amount, pods in asked.items()) / _GPU_PARTS
            nodes = counting.packed(asked, _GPU_PARTS * max(item.supply.gpus_per_node for item in by_origin.values()))
            least = max(least, volume * price, nodes * min(item.cost for item in by_origin.values()))
        if self._is_complete:
            everything = self._prices[0]
            for own in self._prices[1:]:
                everything = counting.cheapest(everything, own)
            least = max(least, counting.bound(everything, self._moments, self._node_cost))
        return least if self._node_cost is None else ceil(least / self._node_cost - EPSILON) * self._node_cost


def _key(found: Candidate) -> tuple[float, ...]:
    _, _, cost, memory, faults, pools, _ = found.rank
    return cost, memory, faults, pools


_GPU_PARTS = 1_000_000


def _parts(kind: PodKind, item: Item) -> int:
    """Return how many millionths of a GPU a pod asks for, rounded down."""
    if kind.resource is not None:
        return 0
    if kind.memory_bytes is not None:
        return _GPU_PARTS * kind.memory_bytes // (item.supply.gpu_mib * MIB) if item.supply.gpu_mib else 0
    return _GPU_PARTS * kind.count if kind.milli is None else _GPU_PARTS // 1000 * kind.milli


def _per_node(pool: PoolSupply) -> Counter[str]:
    found = Counter[str]()
    for device in pool.devices:
        found[device.resource] += device.slots
    return found


def _loads(targets: Sequence[tuple[tuple[int, ...], str, int]], now: Sequence[int]) -> _Load:
    """Return what the pods of one moment request."""
    load: _Load = {}
    for (where, resource, amount), pods in zip(targets, now, strict=True):
        load.setdefault((where, resource), Counter())[amount] += pods
    return load


def _missing(
    load: _Load, wish: tuple[tuple[int, ...], str], least: Sequence[int], pools: Sequence[tuple[float, Mapping[str, int]]]
) -> float:
    """Return what more nodes cost at least, because several pools together have too few of a resource.

    `pools` are what a node costs, and how much of each resource it has.
    """
    where, resource = wish
    asked = [amounts for (others, name), amounts in load.items() if name == resource and set(others) <= set(where)]
    wanted = sum(amount * pods for amounts in asked for amount, pods in amounts.items())
    missing = wanted - sum(least[place] * pools[place][1][resource] for place in where)
    return max(missing, 0) * min(pools[place][0] / pools[place][1][resource] for place in where)


def _servable(item: Item, samples: Mapping[PodKind, PodRequest]) -> Iterator[PodKind]:
    """Yield the kinds of pods that the engine has request a share of the item, if there is nothing else."""
    chooser = Chooser(Supply(pools=(item.supply,), quotas={}))
    for kind, pod in samples.items():
        if counting.may_use(kind, item) and not isinstance(chooser.choose(replace(pod, pool="")), str):
            yield kind


def _undominated(items: Sequence[Item], kinds: Sequence[PodKind]) -> list[Item]:
    """Leave out a division of like shares if another one serves the same pods with no fewer shares and no weaker isolation.

    Where some pods ask for memory and others for parts, nothing is left out: which share is the smaller depends on the pod.
    """
    if {kind.memory_bytes is None for kind in kinds if kind.memory_bytes or kind.milli} == {True, False}:
        return list(items)
    best: dict[tuple[object, ...], Item] = {}
    kept = []
    ranked = sorted(
        enumerate(items), key=lambda one: (one[1].isolation, -sum(number for _, number in one[1].slots), not one[1].is_current)
    )
    for place, item in ranked:
        serving = tuple(counting.number_of_slots(kind, item) > 0 for kind in kinds)
        other = best.get((item.origin, serving))
        if any(serving) and (len(item.slots) > 1 or item.is_current):
            kept.append(place)
        elif any(serving) and (other is None or other.slots[0][1] < item.slots[0][1]):
            best[item.origin, serving] = item
            kept.append(place)
    return [items[place] for place in sorted(kept)]
