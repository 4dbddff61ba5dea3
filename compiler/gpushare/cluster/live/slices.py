"""What the DRA driver offers on each node, by its ResourceSlices, how that differs from the plan, and what claims leave. Pure.

As the scheduler reads them: of a pool of slices the newest generation counts, and no device of one that is incomplete.

A share is a part of a device as the plan divides it, so that the numbers compare with those of a device plugin. A claim of
another size counts as so many shares as it takes away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpushare.cluster.live import claims
from gpushare.cluster.live.claims import Claim, Device, DeviceClass, Grant, Request, Slice
from gpushare.cluster.live.live_pools import ClassPlan, LivePool, LivePools
from gpushare.cluster.live.objects import Pod, Snapshot
from gpushare.core.units import MIB
from gpushare.core.wording import join_first
from gpushare_node.contract.names import MEMORY, SHARES
from gpushare_node.contract.policy import DraShares
from gpushare_node.contract.struct import NOTHING, Struct, replace


class Listed(Struct):
    """One device as it is offered: on which node, in which pool of slices. `is_offered`: the pool is complete."""

    node: str
    pool: str
    device: Device
    is_offered: bool


class NodeOffer(Struct):
    """What a node's slices have. `devices` are by class of the node's pool; `problem` is empty if they are as planned.

    `is_there`: whether the node has any slice.
    """

    devices: Mapping[str, tuple[Listed, ...]] = NOTHING
    problem: str = ""
    is_there: bool = False


def listed(slices: Iterable[Slice]) -> tuple[Listed, ...]:
    """Return the devices of all slices of the newest generation of each pool."""
    return tuple(
        Listed(node=one.node, pool=one.pool, device=device, is_offered=is_complete)
        for one, is_complete in _current(slices)
        for device in one.devices
    )


def _current(slices: Iterable[Slice]) -> list[tuple[Slice, bool]]:
    by_pool: dict[str, list[Slice]] = {}
    for one in slices:
        by_pool.setdefault(one.pool, []).append(one)
    found = []
    for group in by_pool.values():
        newest = max(one.generation for one in group)
        current = [one for one in group if one.generation == newest]
        found += [(one, all(each.count == len(current) for each in current)) for one in current]
    return found


def counters(slices: Iterable[Slice]) -> dict[str, dict[str, int]]:
    """Return how much of each counter there is in each pool of slices."""
    found: dict[str, dict[str, int]] = {}
    for one, _ in _current(slices):
        found.setdefault(one.pool, {}).update(one.counters)
    return found


def of_node(slices: Sequence[Slice], pool: LivePool, classes: Mapping[str, DeviceClass]) -> NodeOffer:
    """Return the offer of one node, as its pool of the driver wants it. `classes` are those that were read."""
    if not slices:
        return NodeOffer(problem="the DRA driver has published no ResourceSlice of this node")
    current = _current(slices)
    every = listed(slices)
    grouped: dict[str, list[Listed]] = {name: [] for name in pool.classes}
    for one in every:
        grouped.setdefault(_class_of(pool, one.device), []).append(one)
    problem = (
        _incomplete(current)
        or _repeated(every)
        or _numbers(pool, grouped)
        or _divided(pool, every)
        or _not_selected(grouped, classes)
    )
    known = {name: tuple(grouped[name]) for name in pool.classes}
    return NodeOffer(devices=known, problem=problem, is_there=True)


def _class_of(pool: LivePool, device: Device) -> str:
    """Return the class of the pool for which the device is meant; without one what it is, as text."""
    kind = f"{device.kind or 'unknown type'} {device.profile}".strip()
    return next((name for name, plan in pool.classes.items() if plan.is_of(device)), f"devices of {kind}")


def _incomplete(current: Iterable[tuple[Slice, bool]]) -> str:
    have = Counter(one.pool for one, _ in current)
    wrong = sorted(
        {f"pool {one.pool or '?'} has {have[one.pool]} of {one.count} slices" for one, whole in current if not whole}
    )
    return f"{join_first(wrong)}: the scheduler takes no device of it" if wrong else ""


def _repeated(every: Iterable[Listed]) -> str:
    names = Counter((one.pool, one.device.name) for one in every)
    wrong = sorted(name or "?" for (_, name), number in names.items() if number > 1)
    return f"{join_first(wrong)} listed more than once" if wrong else ""


def _numbers(pool: LivePool, grouped: Mapping[str, Sequence[Listed]]) -> str:
    wanted = {name: plan.devices for name, plan in pool.classes.items()}
    # On demand the driver lists every profile that a card has, and whole GPUs if they switch MIG mode by themselves.
    judged = wanted if pool.is_on_demand else grouped
    wrong = [name for name in sorted(judged) if wanted.get(name, 0) != len(grouped[name])]
    return ", ".join(f"{name}: {len(grouped[name])} instead of {wanted.get(name, 0)}" for name in wrong)


def _divided(pool: LivePool, every: Iterable[Listed]) -> str:
    """Return which devices claims share otherwise: the driver's value consumableShares, which its policies show."""
    wrong = sorted(f"{one.device.name} by {_word(one.device)}" for one in every if not _is_divided_as_planned(pool, one.device))
    return f"claims share {join_first(wrong)}, instead of by {pool.division or 'nothing'}" if wrong else ""


def _is_divided_as_planned(pool: LivePool, device: Device) -> bool:
    plan = next((plan for plan in pool.classes.values() if plan.is_of(device)), None)
    if device.division != pool.division:
        return False
    is_counted = pool.division == DraShares.COUNT and plan is not None and plan.replicas > 1
    return not is_counted or plan is None or device.capacities[SHARES].value == plan.replicas


def _word(device: Device) -> str:
    if device.division == DraShares.COUNT:
        return f"{device.capacities[SHARES].value} shares"
    return device.division or "nothing"


def _not_selected(grouped: Mapping[str, Sequence[Listed]], classes: Mapping[str, DeviceClass]) -> str:
    for name, group in sorted(grouped.items()):
        selection = classes[name].selection if name in classes else None
        wrong = sorted({one.device.product for one in group if selection is not None and not selection.accepts(one.device)})
        if wrong:
            return f"DeviceClass {name} selects {selection}, and the node has {join_first(wrong)}"
    return ""


def offers(snapshot: Snapshot, live: LivePools) -> Mapping[str, NodeOffer] | None:
    """Return the offer of each node that has slices or whose pool is the driver's; None if slices were not read."""
    if snapshot.dra is None:
        return {}
    if not snapshot.has_seen(claims.SLICES):
        return None
    classes = {one.name: one for one in snapshot.dra.classes}
    of_nodes: dict[str, list[Slice]] = {}
    for one in snapshot.dra.slices:
        of_nodes.setdefault(one.node, []).append(one)
    found = {}
    for name, pool_name in live.of_node.items():
        pool = live.pools.get(pool_name) or LivePool(name=pool_name)
        if name in of_nodes or pool.is_dra:
            found[name] = of_node(of_nodes.get(name, ()), pool, classes)
    return found


class Held(Struct):
    """A device that a claim has, or a part of it."""

    claim: Claim
    grant: Grant


Allocations = Mapping[tuple[str, str], Sequence[Held]]
"""By the pool of slices and the name of the device."""


def allocations(claims: Iterable[Claim]) -> Allocations:
    """Return who has which device; who only looks on has none."""
    found: dict[tuple[str, str], list[Held]] = {}
    for claim in claims:
        for grant in claim.grants or ():
            if grant.is_admin:
                continue
            found.setdefault((grant.pool, grant.device), []).append(Held(claim=claim, grant=grant))
    return found


def seen_allocations(snapshot: Snapshot) -> Allocations | None:
    """Return who has which device; None if claims were not read."""
    if snapshot.dra is None or not snapshot.has_seen(claims.CLAIMS):
        return None
    return allocations(snapshot.dra.claims)


def key_of(listed: Listed) -> tuple[str, str]:
    """Return by what claims name a device."""
    return listed.pool, listed.device.name


def without_pods(claims: Iterable[Claim], pods: Iterable[Pod]) -> Iterator[Claim]:
    """Yield the claims that have devices though none of the pods is there for which they are reserved."""
    there = {(pod.namespace, pod.name, pod.uid) for pod in pods}
    for claim in claims:
        if claim.grants and not any((claim.namespace, *pod) in there for pod in claim.pods):
            yield claim


def left(device: Device, held: Sequence[Held]) -> dict[str, int]:
    """Return what is left of each capacity; nothing of a device that one claim has whole."""
    if is_whole(device, held):
        return dict.fromkeys(device.capacities, 0)
    used: Counter[str] = Counter()
    for one in held:
        used.update(one.grant.consumed)
    return {name: one.value - used[name] for name, one in device.capacities.items()}


def is_whole(device: Device, held: Sequence[Held]) -> bool:
    """Whether one claim has the device whole: it is not shared, or was not when the claim got it."""
    return bool(held) and (not device.division or not all(one.grant.consumed for one in held))


def asked(device: Device, request: Request) -> dict[str, int]:
    """Return what a request takes of a device: what it leaves out it takes as the driver says, which may be all."""
    return {name: request.capacities.get(name, one.default) for name, one in device.capacities.items()}


def shares_used(plan: ClassPlan, division: str, consumed: Mapping[str, int]) -> int:
    """Return how many shares a claim takes away that consumes this much of a device."""
    size = share_bytes(plan)
    if plan.replicas > 1 and division == DraShares.COUNT:
        return consumed.get(SHARES, 1)
    if plan.replicas > 1 and division == DraShares.MEMORY and size and MEMORY in consumed:
        return max(1, -(-consumed[MEMORY] // size))
    return plan.replicas


def shares_left(plan: ClassPlan, device: Device, held: Sequence[Held]) -> int:
    """Return how many more shares fit on a device."""
    size, rest = share_bytes(plan), left(device, held)
    if is_whole(device, held):
        return 0
    if plan.replicas == 1 or not device.division:
        return 0 if held else plan.replicas
    if SHARES in rest:
        return max(0, rest[SHARES])
    return max(0, min(plan.replicas, rest.get(MEMORY, 0) // size)) if size else 0


def share_bytes(plan: ClassPlan) -> int:
    """Return the memory of a share; 0 if it is not known."""
    return 0 if plan.memory_mib is None else plan.memory_mib // plan.replicas * MIB


def with_claims(snapshot: Snapshot, live: LivePools) -> Snapshot:
    """Return the snapshot with the claims of pods counted among their requests, as shares of the classes of our pools.

    A claim that several pods share counts for each of them.
    """
    if snapshot.dra is None:
        return snapshot
    claims = {(one.namespace, one.name): one for one in snapshot.dra.claims}
    plans = {name: (plan, pool) for pool in live.pools.values() for name, plan in pool.classes.items()}
    return replace(snapshot, pods=tuple(_counted(pod, claims, plans) for pod in snapshot.pods))


Plans = Mapping[str, tuple[ClassPlan, LivePool]]


def _counted(pod: Pod, claims: Mapping[tuple[str, str], Claim], plans: Plans) -> Pod:
    if not pod.claims:
        return pod
    by_claim = pod.by_claim.union(plans)
    requests = Counter({name: number for name, number in pod.requests.items() if name not in by_claim})
    for one in pod.claims:
        claim = claims.get((pod.namespace, one.claim))
        for name, number in _shares(claim, plans) if claim else ():
            requests[name] += number
    return replace(pod, requests=dict(requests))


def _shares(claim: Claim, plans: Plans) -> Iterator[tuple[str, int]]:
    if claim.grants is not None:
        by_request = {one.name: one.device_class for alternatives in claim.requests for one in alternatives}
        for grant in claim.grants:
            name = by_request.get(grant.request, "")
            if name in plans:
                plan, pool = plans[name]
                yield name, shares_used(plan, pool.division, grant.consumed)
        return
    for alternatives in claim.requests:
        first = next((one for one in alternatives if one.device_class in plans), None)
        if first is not None:
            plan, pool = plans[first.device_class]
            yield first.device_class, first.count * shares_used(plan, pool.division, first.capacities)
