"""Which claims have which devices, and what is left of each device. Pure.

A share is a part of a device as the plan divides it, so that the numbers compare with those of a device plugin. A claim of
another size counts as so many shares as it takes away.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpushare.cluster.live import devices
from gpushare.cluster.live.devices import Claim, Device, Grant, Request
from gpushare.cluster.live.live_pools import ClassPlan, LivePool, LivePools
from gpushare.cluster.live.slices import Listed
from gpushare.cluster.live.snapshot import Pod, Snapshot
from gpushare.core.units import MIB
from gpushare_node.contract.struct import Struct, replace


class Held(Struct):
    """A device that a claim has, or a part of it."""

    claim: Claim
    grant: Grant


Allocations = Mapping[tuple[str, str], Sequence[Held]]
"""By the pool of slices and the name of the device."""


def of(claims: Iterable[Claim]) -> Allocations:
    """Return who has which device; who only looks on has none."""
    found: dict[tuple[str, str], list[Held]] = {}
    for claim in claims:
        for grant in claim.grants or ():
            if grant.is_admin:
                continue
            found.setdefault((grant.pool, grant.device), []).append(Held(claim=claim, grant=grant))
    return found


def seen(snapshot: Snapshot) -> Allocations | None:
    """Return who has which device; None if claims were not read."""
    if snapshot.dra is None or not snapshot.has_seen(devices.CLAIMS):
        return None
    return of(snapshot.dra.claims)


def key(listed: Listed) -> tuple[str, str]:
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
    if plan.replicas > 1 and division == devices.BY_COUNT:
        return consumed.get(devices.SHARES, 1)
    if plan.replicas > 1 and division == devices.BY_MEMORY and size and devices.MEMORY in consumed:
        return max(1, -(-consumed[devices.MEMORY] // size))
    return plan.replicas


def shares_left(plan: ClassPlan, device: Device, held: Sequence[Held]) -> int:
    """Return how many more shares fit on a device."""
    size, rest = share_bytes(plan), left(device, held)
    if is_whole(device, held):
        return 0
    if plan.replicas == 1 or not device.division:
        return 0 if held else plan.replicas
    if devices.SHARES in rest:
        return max(0, rest[devices.SHARES])
    return max(0, min(plan.replicas, rest.get(devices.MEMORY, 0) // size)) if size else 0


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
