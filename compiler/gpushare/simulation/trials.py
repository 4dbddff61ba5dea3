"""Asks the engine: from ways to divide and numbers of nodes to a candidate. What a candidate costs is what the engine says."""

import re
from collections import Counter
from collections.abc import Collection
from itertools import count

from gpushare import modes
from gpushare.intent.types import Pool
from gpushare.modes.demand import FaultIsolation, MemoryIsolation
from gpushare.simulation.choice import Chooser
from gpushare.simulation.counting import Item
from gpushare.simulation.engine import simulate
from gpushare.simulation.found import NODE_LABEL, Candidate, Choice
from gpushare.simulation.known import Known
from gpushare.simulation.outcome import Outcome
from gpushare.simulation.supply import Supply
from gpushare.workload.requests import PodRequest
from gpushare_node.contract.struct import replace

Subset = tuple[int, ...]
"""Some of the items, by their indexes."""


class Trials:
    """The items and pods of pools that share pods, and how often the engine was asked about them."""

    def __init__(self, known: Known, origins: tuple[str, ...], items: list[Item], pods: tuple[PodRequest, ...]) -> None:
        self.items, self.pods, self.evaluations = items, pods, 0
        self._known, self._origins = known, origins

    def tried(self, subset: Subset) -> Candidate:
        """Return what the engine says of the items: first with as many nodes as it adds, then with these from the start."""
        opened = {pool.name: pool.nodes for pool in self.run(subset, None).pools}
        nodes = [opened[name] for name in self.names(subset)]
        return self.settled(
            tuple(index for index, number in zip(subset, nodes, strict=True) if number), tuple(filter(None, nodes))
        )

    def settled(self, subset: Subset, counts: tuple[int, ...]) -> Candidate:
        """Return the candidate with these numbers of nodes, or with a few more if the scheduler spreads pods so that some wait.

        If four or half as many more are not enough, it stays at these: on yet more nodes the pods would be spread further.
        """
        within = self.within_limits(subset, counts)
        first, short = self.fixed(subset, within)
        low, high = counts, tuple(nodes + is_short * max(4, nodes // 2) for nodes, is_short in zip(counts, short, strict=True))
        if first.serves or within != counts or self.within_limits(subset, high) != high:
            return first
        best, _ = self.fixed(subset, high)
        if not best.serves:
            return first
        while any(more - nodes > 1 for nodes, more in zip(low, high, strict=True)):
            middle = tuple((nodes + more) // 2 for nodes, more in zip(low, high, strict=True))
            found, _ = self.fixed(subset, middle)
            best = found if found.serves else best
            low, high = (low, middle) if found.serves else (middle, high)
        return best

    def within_limits(self, subset: Subset, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the numbers of nodes, reduced in proportion where a pool of the intent has fewer."""
        found = list(counts)
        for origin in self._origins:
            limit = self._known.limits[origin]
            places = [place for place, index in enumerate(subset) if self.items[index].origin == origin]
            wanted = sum(counts[place] for place in places)
            if limit is None or wanted <= limit:
                continue
            for place in places:
                found[place] = counts[place] * limit // wanted
            spare = sorted(places, key=lambda place: (-(counts[place] * limit % wanted), place))
            for place in spare[: limit - sum(found[place] for place in places)]:
                found[place] += 1
        return tuple(found)

    def fixed(self, subset: Subset, counts: tuple[int, ...]) -> tuple[Candidate, tuple[bool, ...]]:
        """Return the candidate with exactly these numbers of nodes, and which of its pools let pods wait."""
        outcome = self.run(subset, counts)
        pools = self.pools(subset, counts)
        found = {pool.name: pool for pool in outcome.pools}
        items = [self.items[index] for index in subset]
        origins = Counter(item.origin for item in items)
        short = tuple(bool(found[pool.name].pending or found[pool.name].waited_seconds) for pool in pools)
        stranded = [found[pool.name].stranded_mib for pool in pools]
        memory, faults = self.isolation(subset)
        candidate = Candidate(
            choices=tuple(
                Choice(
                    origin=item.origin,
                    variant=item.division.variant,
                    pool=pool,
                    nodes=nodes,
                    is_split=origins[item.origin] > 1,
                    is_current=item.is_current,
                )
                for item, pool, nodes in zip(items, pools, counts, strict=True)
            ),
            cost=sum(item.cost * nodes for item, nodes in zip(items, counts, strict=True)),
            gpus=sum(pool.gpus_per_node * nodes for pool, nodes in zip(pools, counts, strict=True)),
            nodes=sum(counts),
            pending=sum(outcome.unserved.values()) + sum(sum(pool.pending.values()) for pool in outcome.pools),
            waited_seconds=sum(pool.waited_seconds for pool in outcome.pools),
            stranded_mib=None if None in stranded else sum(number or 0 for number in stranded),
            memory=list(MemoryIsolation)[memory],
            faults=list(FaultIsolation)[faults],
        )
        return candidate, short

    def run(self, subset: Subset, counts: tuple[int, ...] | None) -> Outcome:
        """Return what the engine says; `counts` None: how many nodes the workload needs."""
        self.evaluations += 1
        pools = self.pools(subset, counts)
        prices = {
            pool.name: self._known.prices[self.items[index].origin]
            for pool, index in zip(pools, subset, strict=True)
            if self.items[index].origin in self._known.prices
        }
        offered = self._known.supply(pools, prices)
        if counts is None:
            offered = replace(offered, pools=tuple(replace(pool, nodes=None) for pool in offered.pools))
        names = tuple(pool.name for pool in pools)
        pods = tuple(self.renamed(pod, subset, names) if pod.pool or pod.resource else pod for pod in self.pods)
        return simulate(offered, replace(self._known.workload, pods=pods), self._known.settings)

    def pools(self, subset: Subset, counts: tuple[int, ...] | None) -> tuple[Pool, ...]:
        """Return the pools as an intent has them. A split pool divides the nodes that are named, or by a label of its own."""
        origins = Counter(self.items[index].origin for index in subset)
        begin = Counter[str]()
        found = []
        for place, (index, name) in enumerate(zip(subset, self.names(subset), strict=True)):
            item = self.items[index]
            pool, is_split = item.division.pool, origins[item.origin] > 1
            nodes = 1 if counts is None else counts[place]
            selector = pool.nodes
            if selector.names:
                selector = replace(selector, names=selector.names[begin[item.origin] :][:nodes])
                begin[item.origin] += nodes
            else:
                labels = ((NODE_LABEL, name),) if is_split else ()
                selector = replace(selector, match_labels=(*selector.match_labels, *labels), expected=nodes)
            found.append(replace(pool, name=name, nodes=selector, is_default=pool.is_default and not is_split))
        return tuple(found)

    def names(self, subset: Subset) -> tuple[str, ...]:
        """Return the names of the pools: those of the intent, or such as say how the nodes of a split pool are divided."""
        origins = Counter(self.items[index].origin for index in subset)
        taken = set(self._known.pools)
        found = []
        for index in subset:
            item = self.items[index]
            name = item.origin
            if origins[name] > 1:
                name = unused(f"{item.origin[:24]}-{suffix(item.division.pool)}", taken)
                taken.add(name)
            found.append(name)
        return tuple(found)

    def renamed(self, pod: PodRequest, subset: Subset, names: tuple[str, ...]) -> PodRequest:
        """Return the pod as its author writes it for these pools: who named a split pool, or a resource, names one of them."""
        if pod.resource is not None:
            current = (name for index, name in zip(subset, names, strict=True) if self.items[index].is_current)
            allowed = [name for name in current if not pod.pool or name.startswith(pod.pool)]
            return replace(pod, pool=allowed[0]) if allowed else pod
        if not pod.pool or pod.pool in names:
            return pod
        if len(self._origins) == 1:
            return replace(pod, pool="")
        own = [
            replace(self.items[index].supply, name=name)
            for index, name in zip(subset, names, strict=True)
            if self.items[index].origin == pod.pool
        ]
        own.sort(key=lambda pool: pool.name)
        target = Chooser(Supply(pools=tuple(own), quotas={})).choose(replace(pod, pool=""))
        return pod if isinstance(target, str) else replace(pod, pool=own[target.pools[0]].name)

    def isolation(self, subset: Subset) -> tuple[int, int]:
        """Return the weakest isolation of the items."""
        memory, faults = zip(*(self.items[index].isolation for index in subset), strict=True)
        return max(memory), max(faults)


def suffix(pool: Pool) -> str:
    """Return what tells a pool from others that were the same pool: how its GPUs are divided."""
    sharing, traits = pool.sharing, modes.of(pool)
    if traits.is_partitioned:
        layout = traits.written[1]
        return "mig-" + "-".join(re.sub("[^a-z0-9]+", "-", name.lower()) for name, _ in layout[:2]) if layout else "mig"
    return f"{'mps-' if traits.has_daemon else ''}x{sharing.replicas}" if sharing.replicas else "whole"


def unused(name: str, taken: Collection[str]) -> str:
    """Return the name, shortened and numbered so that it is a pool's name that is not taken."""
    short = name[:44].rstrip("-")
    return next(each for number in count(1) if (each := short if number == 1 else f"{short}-{number}") not in taken)
