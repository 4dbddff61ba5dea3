"""What containers may use through ResourceClaims: which claims are theirs, what these consume, and who shares one. Pure.

Kubelet gives a container the devices of the requests that its pod names for it. A claim that several containers use is one
budget for all of them.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import Allocation, Claim
from gpushare_node.contract.policy import Share
from gpushare_node.guard.inputs import ContainerId
from gpushare_node.vendors import is_gpu_resource

_MIB = 1 << 20

Allocations = Mapping[tuple[str, str], tuple[Allocation, ...]]
"""Kubelet's allocations by pod uid and container name; those by claims have no container."""

KnownClaims = Mapping[str, Mapping[str, bool]]
"""The claims that kubelet lists by pod uid and name, and whether all their devices are GPUs of a vendor's driver."""


def known_claims(allocations: Iterable[Allocation]) -> KnownClaims:
    """Return the claims of each pod that kubelet lists, whatever their drivers."""
    found: dict[str, dict[str, bool]] = {}
    for one in allocations:
        if one.claim is not None:
            own = found.setdefault(one.pod_uid, {})
            own[one.claim.name] = own.get(one.claim.name, True) and is_gpu_resource(one.resource)
    return found


def given_to(pod: PodView, name: str, allocations: Allocations) -> list[Allocation]:
    """Return what kubelet gave to the container of this name, by plugins and by the requests of claims that it uses."""
    found = [one for uid in pod.uids for one in allocations.get((uid, name), ())]
    claimed = [one for uid in pod.uids for one in allocations.get((uid, ""), ())] if pod.claims else ()
    return found + [one for one in claimed if one.claim is not None and _uses(pod, name, one.claim)]


def _uses(pod: PodView, name: str, claim: Claim) -> bool:
    """Whether the container uses this request of the claim: kubelet gives it the devices of the requests that it names."""
    wanted = (own.requests.get(name, frozenset()) for own in pod.claims if own.name == claim.name)
    return pod.namespace == claim.namespace and any(
        not claim.request or "" in requests or claim.request in requests for requests in wanted if requests
    )


class Budget(NamedTuple):
    """What several containers may use together of a device: the union of what each was given there."""

    containers: frozenset[ContainerId]
    given: tuple[Allocation, ...]

    def beyond(self, given: Iterable[Allocation]) -> list[Allocation]:
        """Return what was given to the others alone; of a claim it does not matter to whom."""
        own = list(given)
        claims = {one.claim for one in own}
        return [one for one in self.given if (one not in own if one.claim is None else one.claim not in claims)]


def joint_budgets(pods: Iterable[PodView], allocations: Allocations) -> Mapping[ContainerId, Mapping[str, Budget]]:
    """Return the budgets of running containers that use one claim, by container and device.

    A container that uses two claims of one device ties both together: the driver does not tell which memory is whose. A claim
    that only looks on ties nobody: who uses it without another one has no budget that the others could answer for.
    """
    if not any(name == "" for _, name in allocations):
        return {}
    held: dict[ContainerId, list[Allocation]] = {}
    users: dict[tuple[str, str], set[ContainerId]] = {}
    for pod in pods:
        for run in pod.started if pod.claims else ():
            own = ContainerId(pod.uids[0], run)
            held[own] = given_to(pod, pod.containers.get(run, ""), allocations)
            for one in held[own]:
                if one.claim is not None and not one.claim.is_admin:
                    for device in one.devices:
                        users.setdefault((device, one.claim.uid), set()).add(own)
    tied: dict[tuple[str, ContainerId], set[ContainerId]] = {}
    for (device, _), group in users.items():
        parts = {id(part): part for one in group if (part := tied.get((device, one))) is not None}
        whole = group.union(*parts.values())
        tied.update(((device, one), whole) for one in whole)
    found: dict[ContainerId, dict[str, Budget]] = {}
    for (device, first), group in tied.items():
        if len(group) == 1 or device in found.get(first, {}):
            continue
        given = {
            (one.claim or container, one.resource, one.ids): one
            for container in sorted(group)
            for one in held[container]
            if device in one.devices
        }
        budget = Budget(frozenset(group), tuple(given.values()))
        for container in group:
            found.setdefault(container, {})[device] = budget
    return found


def shares_of(share: Share, claim: Claim) -> Fraction | None:
    """Return how many shares a claim consumes; None if it consumes nothing, or a part of a device of unknown size.

    By what is counted now does not matter: the driver may have counted in another way when the claim was allocated.
    """
    if claim.shares is not None:
        return Fraction(claim.shares) if claim.shares else None
    if claim.memory_bytes is None:
        return Fraction(share.replicas)
    if not claim.memory_bytes or share.memory_mib is None:
        return None
    return Fraction(claim.memory_bytes * share.replicas, share.memory_mib * _MIB)
