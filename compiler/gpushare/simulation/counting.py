"""A workload counted: which kinds of pods there are, how many of them at once, and how many nodes they need at least.

A bound is a price that no layout can be cheaper than: every share of a node has a price, the shares of a node together cost no
more than the node, and a pod pays for the cheapest share that serves it. Whatever the prices, the pods of one moment together
pay no more than the nodes that serve them cost.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from operator import mul

from gpushare.simulation.divisions import Division
from gpushare.simulation.supply import DeviceSupply, PoolSupply
from gpushare.workload.requests import PodRequest
from gpushare_node.contract.struct import Struct

EPSILON = 1e-6
"""Costs that differ by less are equal."""


class PodKind(Struct):
    """Pods that the same shares of the same pools serve. `origins` are the pools of the intent that may serve them.

    One of `memory_bytes`, `milli` and `resource` is set, or none: whole GPUs. `count` is how many shares each of them takes,
    `per_container` one of its containers at most.
    """

    memory_bytes: int | None
    milli: int | None
    resource: str | None
    count: int
    per_container: int | None
    origins: frozenset[str]


def kind_of(pod: PodRequest, pools: Iterable[PoolSupply]) -> PodKind:
    """Return the kind of a pod, given the pools of the intent."""
    allowed = frozenset(
        pool.name
        for pool in pools
        if pod.pool in {"", pool.name}
        and (not pod.cards or pool.card in pod.cards)
        and (not pool.namespaces or pod.namespace in pool.namespaces)
    )
    return PodKind(
        memory_bytes=pod.memory_bytes,
        milli=pod.milli,
        resource=pod.resource,
        count=pod.count if pod.resource is not None else pod.gpus or 1,
        per_container=pod.per_container,
        origins=allowed,
    )


def serves(kind: PodKind, device: DeviceSupply) -> bool:
    """Whether a share of the device serves a pod of the kind."""
    if kind.memory_bytes is not None:
        return device.provides_bytes is not None and device.provides_bytes >= kind.memory_bytes
    if kind.milli is not None:
        return device.milli >= kind.milli
    if kind.resource is not None:
        return device.resource == kind.resource
    return device.is_whole


class Item(Struct):
    """One way to divide the GPUs of one pool of the intent, as the search sees it. `cost` is that of a node.

    `is_current`: the pool is divided so in the intent; only there pods find a resource that they ask for by name. `slots` are
    the different shares of a node, with their number. `isolation` is smaller if stronger.
    """

    origin: str
    is_current: bool
    division: Division
    supply: PoolSupply
    cost: float
    slots: tuple[tuple[DeviceSupply, int], ...]
    isolation: tuple[int, int]


def slots_of(supply: PoolSupply) -> tuple[tuple[DeviceSupply, int], ...]:
    """Return the different shares of a node, each with their number."""
    found: dict[tuple[object, ...], tuple[DeviceSupply, int]] = {}
    for device in supply.devices:
        key = (device.resource, device.provides_bytes, device.milli, device.is_whole)
        found[key] = (found.get(key, (device, 0))[0], found.get(key, (device, 0))[1] + device.slots)
    return tuple(found.values())


def number_of_slots(kind: PodKind, item: Item) -> int:
    """Return how many shares of a node serve pods of the kind; 0 if they may not use the pool."""
    return sum(number for device, number in item.slots if serves(kind, device)) if may_use(kind, item) else 0


def may_use(kind: PodKind, item: Item) -> bool:
    """Whether pods of the kind may use the item's nodes at all."""
    return item.origin in kind.origins and (kind.resource is None or item.is_current)


class Moments(Struct):
    """How many pods of each kind there are at once, at each of the moments that can need the most nodes.

    A moment for all pods together, and for each kind that in which it has the most pods: as if no pod ever waited.
    """

    kinds: tuple[PodKind, ...]
    pods: tuple[tuple[int, ...], ...]


def moments(pods: Sequence[PodRequest], kinds: Sequence[PodKind]) -> Moments:
    """Return the moments of the pods; `kinds` are theirs, in the same order."""
    numbers = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    changes: dict[int, Counter[int]] = {}
    for pod, kind in zip(pods, kinds, strict=True):
        changes.setdefault(pod.arrival, Counter())[numbers[kind]] += 1
        if pod.duration is not None:
            changes.setdefault(pod.arrival + pod.duration, Counter())[numbers[kind]] -= 1
    times = sorted(changes)
    now, most, at = [0] * len(numbers), [0] * (len(numbers) + 1), [0] * (len(numbers) + 1)
    for time in times:
        for number, change in changes[time].items():
            now[number] += change
            if now[number] > most[number]:
                most[number], at[number] = now[number], time
        if sum(now) > most[-1]:
            most[-1], at[-1] = sum(now), time
    wanted, now = set(at), [0] * len(numbers)
    seen: dict[tuple[int, ...], None] = {}
    for time in times:
        for number, change in changes[time].items():
            now[number] += change
        if time in wanted:
            seen[tuple(now)] = None
    return Moments(kinds=tuple(numbers), pods=tuple(seen))


Prices = tuple[tuple[float, ...], ...]
"""Of each way to price the shares, what a pod of each kind pays in a node of one item; inf if no share there serves it."""


_MAX_WAYS = 6


def _stride(kinds: Sequence[PodKind]) -> int:
    return -(-len(kinds) // _MAX_WAYS)


def prices(item: Item, kinds: Sequence[PodKind], *, in_all_ways: bool) -> Prices:
    """Return the ways to price an item's shares: by the part of the GPU, and for some kinds only the shares that serve them.

    All ways are one for an item whose shares are alike; where all items are such, `in_all_ways` is not worth its time.
    """
    parts = sum((device.milli or 1) * number for device, number in item.slots)
    ways = [[item.cost * (device.milli or 1) / parts for device, _ in item.slots]]
    if in_all_ways and len(item.slots) == 1:
        ways *= 1 + len(kinds[:: _stride(kinds)])
    elif in_all_ways:
        for kind in kinds[:: _stride(kinds)]:
            number = number_of_slots(kind, item)
            ways.append([item.cost / number if number and serves(kind, device) else 0.0 for device, _ in item.slots])
    return tuple(tuple(_paid(item, kind, way) for kind in kinds) for way in ways)


def _paid(item: Item, kind: PodKind, way: Sequence[float]) -> float:
    if not may_use(kind, item):
        return inf
    return kind.count * min(
        (price for price, (device, _) in zip(way, item.slots, strict=True) if serves(kind, device)), default=inf
    )


def cheapest(one: Prices, other: Prices) -> Prices:
    """Return what pods pay if they have the choice of both."""
    return tuple(tuple(map(min, mine, theirs)) for mine, theirs in zip(one, other, strict=True))


def bound(paid: Prices, found: Moments, node_cost: float | None) -> float:
    """Return the least cost of the nodes; inf if a pod is not served. `node_cost`: that of each node, if all cost the same."""
    if inf in paid[0]:
        return inf
    least: float = max(sum(map(mul, way, now)) for way in paid for now in found.pods)
    return least if node_cost is None else ceil(least / node_cost - EPSILON) * node_cost


def served_bound(paid: Prices, found: Moments) -> tuple[int, float]:
    """Return how many pods are not served, and what the others cost at least."""
    missing = [pay == inf for pay in paid[0]]
    least = [0.0 if pay == inf else pay for pay in paid[0]]
    return max(sum(map(mul, missing, now)) for now in found.pods), max(sum(map(mul, least, now)) for now in found.pods)


def packed(amounts: Mapping[int, int], per_node: int) -> int:
    """Return how many nodes pods need at least that each take shares of one node: `amounts` is number of shares → pods.

    The bound of Martello and Toth: who takes more than half of a node has it without others of its size, and of those who take
    less only so many fit beside them.
    """
    least = 0
    for small in {0} | {amount for amount in amounts if amount <= per_node / 2}:
        alone = sum(pods for amount, pods in amounts.items() if amount > per_node - small)
        large = {amount: pods for amount, pods in amounts.items() if per_node / 2 < amount <= per_node - small}
        rest = sum(amount * pods for amount, pods in amounts.items() if small <= amount <= per_node / 2)
        beside = sum((per_node - amount) * pods for amount, pods in large.items())
        least = max(least, alone + sum(large.values()) + max(0, -(-(rest - beside) // per_node)))
    return least
