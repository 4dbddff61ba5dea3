"""What a pod of a workload requests: the resource and the pools that its author writes, and what admission makes of it.

Who needs memory or a part of a GPU requests one share, because a container may have no more, of the smallest kind that provides
it. Admission is that of `charts/gpushare/admission`.

The pods that wait are kept by what they wait for: a pod that ends wakes only those that may run now. Pods that request the same
are tried in the order of their arrival until one fails: the others would fail too, because nothing becomes free in between.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from gpushare.study.simulation.supply import DeviceSupply, PoolSupply, Supply
from gpushare.study.workload.requests import PodRequest
from gpushare_node.contract.struct import Struct


class PodTarget(NamedTuple):
    """What a pod requests: `amount` of `resource`, all on one node of one of the pools (indexes of the supply's, ascending)."""

    pools: tuple[int, ...]
    resource: str
    amount: int


class ResourceKind(Struct):
    """One resource of one pool. `per_node` is how many of it a node has; memory and part are those of its smallest device."""

    pool: int
    name: str
    card: str
    resource: str
    per_node: int
    provides_bytes: int | None
    milli: int
    is_shared: bool
    is_whole: bool

    @property
    def memory(self) -> tuple[bool, int]:
        """What one of it provides, as a sort key; unknown: more than all others."""
        return self.provides_bytes is None, self.provides_bytes or 0


class _Permitted(NamedTuple):
    """The kinds that a pod may request. `by_memory` has those of known memory, `by_part` all, both the smallest first."""

    by_memory: list[ResourceKind]
    by_part: list[ResourceKind]
    whole: list[ResourceKind]


class Chooser:
    """Chooses for the pods of a workload. Pods that ask for the same cost one look-up."""

    def __init__(self, supply: Supply) -> None:
        self._supply = supply
        self._kinds = [kind for index, pool in enumerate(supply.pools) for kind in _kinds(index, pool)]
        self._names = {pool.name: pool for pool in supply.pools}
        self._named = frozenset[str]().union(*(pool.namespaces for pool in supply.pools))
        self._permitted: dict[tuple[str, str, tuple[str, ...]], _Permitted | str] = {}
        self._chosen: dict[tuple[object, ...], PodTarget | str] = {}

    def choose(self, pod: PodRequest) -> PodTarget | str:
        """Return what the pod requests, or why no pool can ever serve it."""
        namespace = pod.namespace if pod.namespace in self._named else ""
        amount = (pod.memory_bytes, pod.milli, pod.gpus, pod.resource, pod.count, pod.per_container)
        asked = (namespace, pod.pool, pod.cards, amount)
        if asked not in self._chosen:
            self._chosen[asked] = self._requested(pod, pod.resource) if pod.resource else self._written(pod)
        return self._chosen[asked]

    def _written(self, pod: PodRequest) -> PodTarget | str:
        """Return what the author of a pod writes who knows which kinds there are, and which of them the namespace may use."""
        key = (pod.namespace if pod.namespace in self._named else "", pod.pool, pod.cards)
        if key not in self._permitted:
            self._permitted[key] = self._permit(pod)
        permitted = self._permitted[key]
        if isinstance(permitted, str):
            return permitted
        if pod.gpus is not None:
            roomy = [kind for kind in permitted.whole if kind.per_node >= pod.gpus]
            if not roomy:
                return "no node has as many whole GPUs" if permitted.whole else "no pool has whole GPUs"
            return _target(roomy, pod.gpus)
        if pod.milli is not None:
            found = permitted.by_part[bisect_left(permitted.by_part, pod.milli, key=lambda kind: kind.milli) :]
            return _target(found, 1) if found else "no share is as large a part of a GPU"
        needed = pod.memory_bytes or 0
        found = permitted.by_memory[bisect_left(permitted.by_memory, (False, needed), key=lambda kind: kind.memory) :]
        if found:
            return _target(found, 1)
        is_known = len(permitted.by_memory) == len(permitted.by_part)
        return "no share has as much memory" if is_known else "no share is known to have as much memory"

    def _permit(self, pod: PodRequest) -> _Permitted | str:
        """Return the kinds of the pools that the pod may use, or why there are none."""
        if pod.pool and pod.pool not in self._names:
            return self._absent(pod.pool)
        kinds = [kind for kind in self._kinds if not pod.pool or kind.name == pod.pool]
        steps: tuple[tuple[str, Callable[[ResourceKind], bool]], ...] = (
            ("no pool has a card that it names", lambda kind: not pod.cards or kind.card in pod.cards),
            ("its namespace may use no such pool", lambda kind: self._admits(kind, pod.namespace)),
            ("no such pool has nodes", self._has_nodes),
        )
        for reason, holds in steps:
            kinds = list(filter(holds, kinds))
            if not kinds:
                return reason
        known = (kind for kind in kinds if kind.provides_bytes is not None)
        return _Permitted(
            by_memory=sorted(known, key=lambda kind: (kind.memory, kind.milli, kind.pool)),
            by_part=sorted(kinds, key=lambda kind: (kind.milli, kind.memory, kind.pool)),
            whole=sorted((kind for kind in kinds if kind.is_whole), key=lambda kind: (kind.memory, kind.pool)),
        )

    def _requested(self, pod: PodRequest, resource: str) -> PodTarget | str:
        """Return what admission makes of a request for a resource by its name."""
        offered = [kind for kind in self._kinds if kind.resource == resource]
        if not offered:
            return f"no pool offers {resource}"
        if pod.pool and pod.pool not in self._names:
            return self._absent(pod.pool)
        is_ambiguous = resource in self._supply.ambiguous
        pool = pod.pool or (self._assigned(pod.namespace, offered) if is_ambiguous and self._supply.assigns else "")
        named = [kind for kind in offered if not pool or kind.name == pool]
        if not named:
            return f"pool {pool} does not offer {resource}"
        if self._supply.denies and not pool and is_ambiguous:
            return f"pools differ in what {resource} is: admission rejects pods that name none"
        if self._supply.denies and not all(self._admits(kind, pod.namespace) for kind in named):
            return f"its namespace may not use {pool or 'every pool'} for {resource}"
        if (pod.per_container or pod.count) > 1 and any(kind.is_shared for kind in named):
            return f"a container gets one {resource} at most: it is shared"
        ready = [kind for kind in named if (not pod.cards or kind.card in pod.cards) and self._has_nodes(kind)]
        roomy = [kind for kind in ready if kind.per_node >= pod.count]
        if not roomy:
            return f"no node has {pod.count} {resource}" if ready else f"no node with its cards offers {resource}"
        return PodTarget(pools=tuple(kind.pool for kind in roomy), resource=resource, amount=pod.count)

    def _absent(self, pool: str) -> str:
        return f"pool {pool} is for virtual machines" if pool in self._supply.machines else f"there is no pool {pool}"

    def _assigned(self, namespace: str, offered: list[ResourceKind]) -> str:
        """Return the pool that admission adds: the only one to which the namespace is assigned, else the default."""
        pools = [self._supply.pools[kind.pool] for kind in offered]
        assigned = [pool.name for pool in pools if namespace in pool.namespaces]
        default = [pool.name for pool in pools if pool.is_default and (not pool.namespaces or namespace in pool.namespaces)]
        return next(iter((assigned if len(assigned) == 1 else []) + default), "")

    def _admits(self, kind: ResourceKind, namespace: str) -> bool:
        allowed = self._supply.pools[kind.pool].namespaces
        return not allowed or namespace in allowed

    def _has_nodes(self, kind: ResourceKind) -> bool:
        return self._supply.pools[kind.pool].nodes != 0


def _target(found: list[ResourceKind], amount: int) -> PodTarget:
    """Return a request for the first of the kinds, of every pool that has the same one: its author may name several pools."""
    first = found[0]
    same = (first.card, first.resource, first.provides_bytes, first.milli)
    pools = tuple(kind.pool for kind in found if (kind.card, kind.resource, kind.provides_bytes, kind.milli) == same)
    return PodTarget(pools=tuple(sorted(pools)), resource=first.resource, amount=amount)


def _kinds(index: int, pool: PoolSupply) -> Iterable[ResourceKind]:
    by_resource: dict[str, list[DeviceSupply]] = {}
    for device in pool.devices:
        by_resource.setdefault(device.resource, []).append(device)
    for resource, devices in by_resource.items():
        provided = [device.provides_bytes for device in devices]
        known = [size for size in provided if size is not None]
        yield ResourceKind(
            pool=index,
            name=pool.name,
            card=pool.card,
            resource=resource,
            per_node=sum(device.slots for device in devices),
            provides_bytes=min(known) if len(known) == len(provided) else None,
            milli=min(device.milli for device in devices),
            is_shared=any(device.slots > 1 for device in devices),
            is_whole=all(device.is_whole for device in devices),
        )


class QuotaLimit(NamedTuple):
    """What a quota limits."""

    namespace: str
    resource: str


class QuotaWish(NamedTuple):
    """So much of a budget."""

    budget: QuotaLimit
    amount: int


Wish = PodTarget | QuotaWish
"""What a pod waits for: room on a node, or quota."""

Source = QuotaLimit | tuple[int, str]
"""What becomes free: quota, or a resource of a pool."""


class Waiting:
    """Pods by their number; lower numbers came first."""

    def __init__(self) -> None:
        self._pods: dict[Wish, list[int]] = {}
        self._wishes: dict[Source, dict[Wish, None]] = {}

    def add(self, pod: int, wish: Wish) -> None:
        """Let a pod wait."""
        if wish not in self._pods:
            self._pods[wish] = []
            for one in _sources(wish):
                self._wishes.setdefault(one, {})[wish] = None
        heappush(self._pods[wish], pod)

    def wake(self, freed: Iterable[Source], serve: Callable[[int], bool]) -> None:
        """Let `serve` try the pods that wait for something of what was freed, in the order of their arrival.

        It returns whether the pod has what it waited for; it may let the pod wait for something else.
        """
        wishes = dict.fromkeys(wish for one in freed for wish in self._wishes.get(one, ()))
        first = [(self._pods[wish][0], number, wish) for number, wish in enumerate(wishes)]
        heapify(first)
        while first:
            pod, number, wish = heappop(first)
            if not serve(pod):
                continue
            heappop(self._pods[wish])
            if self._pods[wish]:
                heappush(first, (self._pods[wish][0], number, wish))
            else:
                self._forget(wish)

    def _forget(self, wish: Wish) -> None:
        del self._pods[wish]
        for one in _sources(wish):
            del self._wishes[one][wish]
            if not self._wishes[one]:
                del self._wishes[one]

    def left(self) -> Iterator[tuple[int, Wish]]:
        """Yield the pods that still wait, and for what."""
        return ((pod, wish) for wish, pods in self._pods.items() for pod in pods)


def _sources(wish: Wish) -> Iterable[Source]:
    return [wish.budget] if isinstance(wish, QuotaWish) else [(pool, wish.resource) for pool in wish.pools]
