"""Grants: what each container may use, from kubelet's allocations, the pods and the pool's shares. Pure.

A pod's containers keep the cap under which the pod was started: a policy that lowers it later applies to future pods. A policy
that raises or removes it applies at once, because that harms no container. A container that ran before there was a cap is
exempt. If something is not known, there is no cap, and that is reported. A terminating pod is granted no more than others: its
owner chooses how long the termination takes. Also what containers may use through ResourceClaims.

Only kubelet's allocations count: on a device that they do not give to a container it may use nothing, whatever its pod
requests, claims, or calls itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from math import inf
from typing import NamedTuple

from gpushare_node.adapters.host.state_dir import CapRecord, KeptContainer
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import Allocation, Claim
from gpushare_node.contract.policy import Policy, Share
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.contract.tenancy import AdmissionMode, Tenancy
from gpushare_node.enforce.exemptions import WallClock, exempt, renew
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, Grant, Owner
from gpushare_node.vendors.driver import GpuInfo, MigInfo

# What containers may use through ResourceClaims: which claims are theirs, what these consume, and who shares one. Pure.
#
# Kubelet gives a container the devices of the requests that its pod names for it. A claim that several containers use is one
# budget for all of them.

_MIB = 1 << 20

Allocations = Mapping[str, tuple[Allocation, ...]]
"""Kubelet's allocations of GPUs by pod uid, and all claims that it lists, whatever their drivers."""


def held_by(pod: PodView, allocations: Allocations) -> list[Allocation]:
    """Return what kubelet gave to the pod."""
    return [one for uid in pod.uids for one in allocations.get(uid, ())]


def given_to(pod: PodView, name: str, allocations: Allocations) -> list[Allocation]:
    """Return what kubelet gave to the container of this name, by plugins and by the requests of claims that it uses."""
    held = held_by(pod, allocations)
    return [one for one in held if (one.container == name if one.claim is None else _uses(pod, name, one.claim))]


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
    if not any(one.claim is not None for several in allocations.values() for one in several):
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


_FUTURE_SECONDS = 1800
"""A start this much later than now was recorded by a clock that was ahead: no drift is as large."""

Profiles = Mapping[str, str | None]
"""The devices that can be allocated to tenants: uuid → MIG profile as policies write it, None for a whole GPU."""

_Runs = Mapping[tuple[str, str], list[KeptContainer]]
"""The stored containers by pod uid and container name: a container has another id in each of its runs."""


class Noticed(NamedTuple):
    """A container that is exempt from a cap for now."""

    unit: Unit
    cap: Cap


class Granted(Struct):
    """What applies now. `kept` is to be stored by container; `unresolved` states which allocations have no cap, and why.

    `noticed` are exemptions that have not been reported to the containers yet. `lost` are the pods that run with what kubelet's
    files no longer list.
    """

    grants: Mapping[ContainerId, Grant]
    kept: Mapping[str, KeptContainer]
    unresolved: tuple[str, ...]
    noticed: tuple[Noticed, ...] = ()
    lost: tuple[str, ...] = ()


class CapTerms(Struct):
    """What the present policy states: shares by resource and profile, and the action that follows a violation.

    `offered` are the resources that kubelet gives on this node: a pod that requests one does not run without it. `first_caps`:
    since when each resource has had a cap on this node; None: not known yet. `today` is the date of the host's clock, `now` the
    date that WallClock accepts.
    """

    shares: Mapping[tuple[str, str | None], Share]
    action: CapAction
    grace_seconds: int
    profiles: Profiles
    tenancy: Tenancy
    offered: frozenset[str]
    notice_seconds: int | None
    first_caps: Mapping[str, int] | None
    now: float
    today: float


def terms(  # noqa: PLR0913, PLR0917 - everything that grants depend on
    policy: Policy,
    tenancy: Tenancy,
    profiles: Profiles,
    first_caps: Mapping[str, int] | None,
    dates: WallClock,
    registered: Iterable[str] = (),
) -> CapTerms:
    """Return the policy as grants need it, now. `registered` are the resources of which kubelet has devices."""
    return CapTerms(
        shares={(share.resource, share.profile): share for share in policy.shares},
        action=CapAction(policy.enforcement.action.value),
        grace_seconds=policy.enforcement.grace_seconds,
        profiles=profiles,
        tenancy=tenancy,
        offered=frozenset(registered).union(name for name, _ in policy.resources),
        notice_seconds=policy.enforcement.notice_seconds,
        first_caps=first_caps,
        now=dates.now(),
        today=dates.wall(),
    )


def profiles(surveys: Iterable[GpuInfo], policy: Policy) -> Profiles:
    """Return the node's devices with their profiles. Split instances and GPUs with a fault are left out: theirs are unknown."""
    desired = {instance.profile_id: instance.profile for gpu in policy.gpus for instance in gpu.instances}
    partitions = {gpu.index: gpu.partition for gpu in policy.gpus}
    found: dict[str, str | None] = {}
    for survey in surveys:
        if survey.fault is not None:
            continue
        if survey.devices:
            target = partitions.get(survey.index)
            profile = None if target is None else policy.share_of(target).profile
            found.update({device.id: profile for device in survey.devices})
        elif survey.mig is None or not survey.mig.current:
            found[survey.uuid] = None
        else:
            found.update(_instances(survey.mig, desired))
    return found


def _instances(mig: MigInfo, desired: Mapping[int | None, str]) -> dict[str, str | None]:
    """Return the MIG devices with their profiles: the driver's name or, if it gives none, the policy's for the same id."""
    names = {profile.id: profile.name for profile in mig.profiles}
    found: dict[str, str | None] = {}
    for instance in mig.instances:
        name = names.get(instance.profile_id) or desired.get(instance.profile_id)
        for compute in instance.compute:
            if name is not None and compute.is_whole and compute.uuid is not None:
                found[compute.uuid] = name
    return found


def by_pod(allocations: Iterable[Allocation]) -> Allocations:
    """Return the allocations of GPUs, and all claims, by pod uid, as grants look them up."""
    found: dict[str, tuple[Allocation, ...]] = {}
    for one in allocations:
        if one.may_be_gpus or one.claim is not None:
            found[one.pod_uid] = (*found.get(one.pod_uid, ()), one)
    return found


def grant(pods: Iterable[PodView], allocations: Allocations, now: CapTerms, kept: Mapping[str, KeptContainer]) -> Granted:
    """Return the grants of every container that the API server and kubelet know, with the caps under which its pod was started.

    `kept` are the caps stored so far. A static pod has its grant under each of its uids: its cgroups use a different one.
    """
    grants: dict[ContainerId, Grant] = {}
    keeping: dict[str, KeptContainer] = {}
    unresolved: list[str] = []
    noticed: list[Noticed] = []
    lost: list[str] = []
    runs = _by_name(kept.values())
    pods = tuple(pods)
    budgets = joint_budgets(pods, allocations)
    for pod in pods:
        held_by_pod = held_by(pod, allocations)
        is_lost = bool(pod.started) and not pod.is_gone and _is_lost(pod, held_by_pod, now)
        if is_lost:
            lost.append(f"{pod.namespace}/{pod.name}")
        stray_cap = None if is_lost or not _are_known(pod, held_by_pod, now) else _stray_cap(pod, held_by_pod, now)
        for container, name in pod.containers.items():
            if pod.has_ended and container not in pod.started:
                continue
            given = given_to(pod, name, allocations)
            former = _former(container, pod, name, kept, runs)
            joint = budgets.get(ContainerId(pod.uids[0], container), {})
            present, unclear = _present(given, now)
            where = f"{pod.namespace}/{pod.name}, container {name}"
            unresolved += [f"{where}: {why}" for device, why in unclear.items() if device not in former]
            held = _hold(former, present, _cap_came(given, pod.started.get(container), now), now)
            if held:
                keeping[container] = KeptContainer(pod_uid=pod.uids[0], name=name, caps=tuple(held[at] for at in sorted(held)))
            devices = frozenset(device for allocation in given for device in allocation.devices) | former.keys()
            found = {device: _cap(own, present.get(device), now) for device, own in held.items()}
            caps = {
                device: cap for device, own in found.items() if (cap := _joint_cap(own, device, joint, given, now)) is not None
            }
            owner = Owner(namespace=pod.namespace, uid=f"{pod.uids[0]}/{name}")
            stray = stray_cap if _is_younger(pod.started.get(container), now) else None
            partners = {device: budget.containers for device, budget in joint.items()}
            own = Grant(owner=owner, devices=devices, caps=caps, stray_cap=stray, is_gone=pod.is_gone, partners=partners)
            grants.update({ContainerId(pod_uid=uid, container=container): own for uid in pod.uids})
            noticed += [
                Noticed(Unit(ContainerId(pod.uids[0], container), device), cap)
                for device, cap in caps.items()
                if cap.exemption is not None and (device not in former or held[device].notice != former[device].notice)
            ]
    return Granted(grants=grants, kept=keeping, unresolved=tuple(unresolved), noticed=tuple(noticed), lost=tuple(lost))


def _by_name(kept: Iterable[KeptContainer]) -> _Runs:
    found: dict[tuple[str, str], list[KeptContainer]] = {}
    for container in kept:
        found.setdefault((container.pod_uid, container.name), []).append(container)
    return found


def _former(container: str, pod: PodView, name: str, kept: Mapping[str, KeptContainer], runs: _Runs) -> Mapping[str, CapRecord]:
    """Return the container's stored caps by device, else those of its earlier runs in the pod, without their exemptions."""
    if container in kept:
        return {cap.device: cap for cap in kept[container].caps}
    found: dict[str, CapRecord] = {}
    for before in (run for uid in pod.uids for run in runs.get((uid, name), ())):
        found.update({cap.device: _higher(found.get(cap.device), cap) for cap in before.caps if cap.cap_bytes is not None})
    return found


def _cap_came(given: Iterable[Allocation], started: float | None, now: CapTerms) -> float | None:
    """Return when the cap was introduced that is newer than the container: minus infinity if none is, None if not known."""
    if now.first_caps is None or started is None:
        return None
    came = [now.first_caps[allocation.resource] for allocation in given if allocation.resource in now.first_caps]
    # A start in the future means that the clock was set back later; and a container that ran under the cap has a stored one.
    is_older = started > now.today + _FUTURE_SECONDS
    return max((at for at in came if at and (is_older or started < at)), default=-inf)


def _hold(
    former: Mapping[str, CapRecord], present: Mapping[str, CapRecord], cap_came: float | None, now: CapTerms
) -> dict[str, CapRecord]:
    """Return the caps to store for a container by device. Devices that cannot be decided yet are missing."""
    held = dict(former)
    for device, new in present.items():
        old = former.get(device) or _start(new, cap_came)
        if old is None:
            continue
        if new.cap_bytes is None:
            held[device] = old
        elif old.cap_bytes is None:
            since = now.now if device in former or cap_came is None else cap_came
            held[device] = replace(old, notice=renew(old.notice, since=since, seconds=now.notice_seconds, now=now.now))
        else:
            held[device] = _higher(old, new)
    return held


def _start(new: CapRecord, cap_came: float | None) -> CapRecord | None:
    """Return the cap under which a container without a stored cap was started; None: not known yet."""
    if new.cap_bytes is None or cap_came == -inf:
        return new
    return None if cap_came is None else CapRecord(device=new.device, cap_bytes=None)


def _cap(kept: CapRecord, new: CapRecord | None, now: CapTerms) -> Cap | None:
    """Return the cap that applies to a container. `new` is the policy's, None if that is not known."""
    if new is not None and new.cap_bytes is None:
        return None
    is_exempt = kept.cap_bytes is None
    size = new if is_exempt else kept
    if size is None or size.cap_bytes is None:
        return None
    cap = Cap(bytes=size.cap_bytes, tolerance_bytes=size.tolerance_bytes, action=now.action, grace_seconds=now.grace_seconds)
    return exempt(cap, kept.notice) if is_exempt and kept.notice is not None else cap


def _joint_cap(
    own: Cap | None, device: str, joint: Mapping[str, Budget], given: Iterable[Allocation], now: CapTerms
) -> Cap | None:
    """Return the cap of a container with what its partners were given beyond that. None if a part of it has none.

    What is stored of a container is its own alone: a partner takes with it what it brought.
    """
    if own is None or device not in joint:
        return own
    more, unclear = _present(joint[device].beyond(given), now)
    record = more.get(device, CapRecord(device=device, cap_bytes=0))
    if device in unclear or record.cap_bytes is None:
        return None
    return replace(own, bytes=own.bytes + record.cap_bytes, tolerance_bytes=own.tolerance_bytes + record.tolerance_bytes)


def sandbox_grants(grants: Mapping[ContainerId, Grant]) -> tuple[dict[str, ContainerId], dict[ContainerId, Grant]]:
    """Return whose the memory of each pod's sandbox is, and the grants of pods as a whole.

    It is the container's with devices, if the pod has only one; else the pod's, with the sum of its containers' caps.
    """
    by_pod: dict[str, list[ContainerId]] = {}
    for container, own in grants.items():
        if own.devices:
            by_pod.setdefault(container.pod_uid, []).append(container)
    units, whole = {}, {}
    for uid, containers in by_pod.items():
        units[uid] = containers[0] if len(containers) == 1 else ContainerId(uid, "")
        if len(containers) > 1:
            whole[units[uid]] = _whole({one: grants[one] for one in containers}, uid)
    return units, whole


def _whole(parts: Mapping[ContainerId, Grant], uid: str) -> Grant:
    """Return the grant of a pod as a whole. A device on which one of its containers has no cap has none."""
    first = next(iter(parts.values()))
    devices = frozenset(device for part in parts.values() for device in part.devices)
    caps: dict[str, Cap] = {}
    for device in devices:
        # A cap for several containers counts once.
        own = {
            min(part.partners.get(device, {one})): part.caps.get(device)
            for one, part in parts.items()
            if device in part.devices
        }
        known = [cap for cap in own.values() if cap is not None]
        if len(known) == len(own):
            caps[device] = replace(
                known[0], bytes=sum(cap.bytes for cap in known), tolerance_bytes=sum(cap.tolerance_bytes for cap in known)
            )
    return Grant(owner=Owner(first.owner.namespace, uid), devices=devices, caps=caps, is_gone=first.is_gone)


def _is_younger(started: float | None, now: CapTerms) -> bool:
    """Whether the container certainly began after enforcement did on this node: images from before may use every GPU."""
    if started is None or now.first_caps is None:
        return False
    return started <= now.today + _FUTURE_SECONDS and all(started >= began for began in now.first_caps.values())


def _is_lost(pod: PodView, held: Iterable[Allocation], now: CapTerms) -> bool:
    """Whether kubelet's files are younger than this pod, which runs: kubelet would not have started it without giving more.

    It gives every resource that it knows, and prepares every claim that a container uses. It knows no other name, and gives
    nothing for it.
    """
    resources = {one.resource for one in held if one.claim is None}
    claims = {one.claim.name for one in held if one.claim is not None}
    return bool(
        (pod.resources & now.offered) - resources
        or any(claim.name and claim.name not in claims and any(claim.requests.values()) for claim in pod.claims)
    )


def _are_known(pod: PodView, held: Iterable[Allocation], now: CapTerms) -> bool:
    """Whether it is known which of the node's devices the pod was given: else it is unknown, too, which it was not given.

    Not if another program gave it parts of GPUs, or while it is not known which devices a claim has or who uses it.
    """
    names = {claim.name for claim in pod.claims}
    return all(
        bool(one.ids) and now.profiles.keys() >= set(one.devices) and (one.claim is None or one.claim.name in names)
        for one in held
        if one.may_be_gpus
    )


def _stray_cap(pod: PodView, held: Iterable[Allocation], now: CapTerms) -> Cap | None:
    """Return a cap of zero bytes for tenants on devices not allocated to them. Only if admission denies all access to those.

    None for the platform, and for pods that admission leaves alone.
    """
    if now.tenancy.admission is not AdmissionMode.DENY or pod.namespace in now.tenancy.platform:
        return None
    if not now.tenancy.has_tenant(pod.namespace, holds_share=any(one.may_be_gpus for one in held)):
        return None
    return Cap(bytes=0, action=now.action, grace_seconds=now.grace_seconds)


def _present(given: Iterable[Allocation], now: CapTerms) -> tuple[dict[str, CapRecord], dict[str, str]]:
    """Return the policy's caps for one container by device, summed over its replicas; and why other devices have none."""
    sums: dict[str, CapRecord] = {}
    unclear: dict[str, str] = {}
    for (allocation, device), count in Counter((one, device) for one in given for device in one.devices).items():
        if allocation.claim is not None and allocation.claim.is_admin:
            continue
        share = _share(allocation, device, now)
        size = share if isinstance(share, str) else _slices(device, share, allocation.claim, count)
        if isinstance(size, str):
            unclear[device] = size
        else:
            sums[device] = _add(sums.get(device), size)
    return {device: cap for device, cap in sums.items() if device not in unclear}, unclear


def _share(allocation: Allocation, device: str, now: CapTerms) -> Share | str:
    """Return the share of an allocation on this device; a sentence if there is none."""
    resource, claim = allocation.resource, allocation.claim
    if device not in now.profiles:
        whose = resource if claim is None else f"{resource} of claim {claim.name}"
        return f"{whose} was allocated on {device}, which is not a device of this node; no cap is enforced there"
    profile = now.profiles[device]
    share = now.shares.get((resource, profile))
    if share is None:
        return f"the policy has no share for {resource} on {profile or 'a whole GPU'} ({device}); no cap is enforced there"
    return share


def _slices(device: str, share: Share, claim: Claim | None, count: int) -> CapRecord | str:
    """Return the cap for so many shares or, with a claim, for what it consumes; a sentence if that is not known."""
    if share.cap_mib is None:
        return CapRecord(device=device, cap_bytes=None)
    shares = Fraction(count) if claim is None else shares_of(share, claim)
    if shares is None:
        return f"what claim {claim and claim.name} consumes of {device} is not known; no cap is enforced there"
    # However little a claim asks for, a cap of 0 bytes would mean that the device is not the container's.
    cap_mib = max(int(share.cap_mib * shares), 1)
    return CapRecord(device=device, cap_bytes=cap_mib * _MIB, tolerance_bytes=int(share.tolerance_mib * shares) * _MIB)


def _add(former: CapRecord | None, more: CapRecord) -> CapRecord:
    """Return the sum of both; no cap if one of them has none."""
    if former is None:
        return more
    if former.cap_bytes is None or more.cap_bytes is None:
        return CapRecord(device=more.device, cap_bytes=None)
    return CapRecord(
        device=more.device,
        cap_bytes=former.cap_bytes + more.cap_bytes,
        tolerance_bytes=former.tolerance_bytes + more.tolerance_bytes,
    )


def _higher(kept: CapRecord | None, new: CapRecord) -> CapRecord:
    """Return the cap that allows more."""
    if kept is None:
        return new
    return max(kept, new, key=lambda cap: ((cap.cap_bytes or 0) + cap.tolerance_bytes, cap.cap_bytes or 0))
