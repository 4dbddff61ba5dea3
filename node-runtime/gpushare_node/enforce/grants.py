"""Grants: what each container may use, from kubelet's allocations, the pods and the pool's shares. Pure.

A pod's containers keep the cap under which the pod was started: a policy that lowers it later applies to future pods. A policy
that raises or removes it applies at once, because that harms no container. A container that ran before there was a cap is
exempt. If something is not known, there is no cap, and that is reported. A terminating pod is granted no more than others: its
owner chooses how long the termination takes. Containers of a pod that use one ResourceClaim have one cap together: their pod's.

Only kubelet's allocations count: on a device that they do not give to a container it may use nothing, whatever its pod
requests, claims, or calls itself.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import NamedTuple

from gpushare_node.adapters.host.state_dir import CapRecord, KeptContainer
from gpushare_node.adapters.host.state_files import FirstCaps
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.backends.backend import Allocation, Claim
from gpushare_node.contract.policy import Policy, Share
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.contract.tenancy import AdmissionMode, Tenancy
from gpushare_node.enforce.exemptions import WallClock, exempt, renew
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, Grant, Owner
from gpushare_node.vendors import DRA_DRIVERS
from gpushare_node.vendors.driver import GpuInfo, MigInfo

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


def _sharing(pod: PodView, held: Iterable[Allocation]) -> frozenset[str]:
    """Return the names of the containers that use a claim with another one of the pod. A claim that only looks on ties none."""
    tied: set[str] = set()
    for one in held:
        if one.claim is not None and not one.claim.is_admin:
            users = {name for claim in pod.claims for name in claim.requests if _uses(pod, name, one.claim)}
            tied |= users if len(users) > 1 else set()
    return frozenset(tied)


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


Profiles = Mapping[str, str | None]
"""The devices that can be allocated to tenants: uuid → MIG profile as policies write it, None for a whole GPU."""


class _Portion(NamedTuple):
    """A part of a device: the claim or the resource by which it was allocated, and its id there."""

    device: str
    by: Claim | str
    text: str


_Runs = Mapping[tuple[str, str], list[KeptContainer]]
"""The stored containers by pod uid and container name: a container has another id in each of its runs."""


class Noticed(NamedTuple):
    """A container that is exempt from a cap for now."""

    unit: Unit
    cap: Cap


class Granted(Struct, frozen=False):
    """What applies now. `kept` is to be stored by container; `unresolved` states which allocations have no cap, and why.

    `rests` are the grants of pods for what runs in none of their containers that the API server lists: the containers that it
    does not list yet share what was given to those, and a sandbox has what all containers have of which nothing else runs.
    `pooled` are listed containers that share a claim: they have no grant but their pod's.
    `noticed` are exemptions that have not been reported to the containers yet. `lost` are the pods that run with what kubelet's
    files no longer list.
    """

    grants: dict[ContainerId, Grant] = field(default_factory=dict)
    rests: dict[ContainerId, Grant] = field(default_factory=dict)
    kept: dict[str, KeptContainer] = field(default_factory=dict)
    pooled: set[ContainerId] = field(default_factory=set)
    unresolved: tuple[str, ...] = ()
    noticed: tuple[Noticed, ...] = ()
    lost: tuple[str, ...] = ()


class CapTerms(Struct):
    """What the present policy states: shares by resource and profile, and the action that follows a violation.

    `ended` are listed containers in which nothing runs any more: kubelet may have started the next one of that name.
    `offered` are the resources that kubelet gives on this node: a pod that requests one does not run without it. `first_caps`:
    when enforcement began here, and what ran then. `now` is the date that WallClock accepts.
    """

    shares: Mapping[tuple[str, str | None], Share]
    action: CapAction
    grace_seconds: int
    profiles: Profiles
    tenancy: Tenancy
    offered: frozenset[str]
    ended: frozenset[ContainerId]
    notice_seconds: int | None
    first_caps: FirstCaps
    now: float


def terms(  # noqa: PLR0913, PLR0917 - everything that grants depend on
    policy: Policy,
    tenancy: Tenancy,
    profiles: Profiles,
    first_caps: FirstCaps,
    dates: WallClock,
    registered: Iterable[str] = (),
    ended: frozenset[ContainerId] = frozenset(),
) -> CapTerms:
    """Return the policy as grants need it, now. `registered` are the resources of which kubelet has devices."""
    return CapTerms(
        shares={(share.resource, share.profile): share for share in policy.shares},
        action=CapAction(policy.enforcement.action.value),
        grace_seconds=policy.enforcement.grace_seconds,
        profiles=profiles,
        tenancy=tenancy,
        ended=ended,
        offered=frozenset(registered).union(name for name, _ in policy.resources),
        notice_seconds=policy.enforcement.notice_seconds,
        first_caps=first_caps,
        now=dates.now(),
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
    """Return the grants of every pod and its containers that kubelet started, with the caps under which they were started.

    `kept` are the caps stored so far. A static pod has its grant under each of its uids: its cgroups use a different one.
    """
    found = Granted()
    runs = _by_name(kept.values())
    for pod in pods:
        if pod.has_ended and pod.containers and not pod.started:
            continue
        _grant_pod(pod, allocations, now, kept, runs, found)
    return found


def _grant_pod(  # noqa: PLR0913, PLR0917 - everything that a pod's grants depend on
    pod: PodView, allocations: Allocations, now: CapTerms, kept: Mapping[str, KeptContainer], runs: _Runs, found: Granted
) -> None:
    held = held_by(pod, allocations)
    if pod.started and not pod.is_gone and _is_lost(pod, held, now):
        found.lost += (f"{pod.namespace}/{pod.name}",)
        stray = None
    else:
        stray = _stray_cap(pod, held, now) if _are_known(pod, held, now) else None
    sharing = _sharing(pod, held)
    unlisted = {one.container for one in held if one.claim is None} | {name for claim in pod.claims for name in claim.requests}
    unlisted -= set(pod.containers.values())
    caps: dict[str, dict[str, Cap | None]] = {}
    alone: set[str] = set()
    for container, name in (*pod.containers.items(), *((f"{pod.uids[0]}/{name}", name) for name in sorted(unlisted))):
        if pod.has_ended and container not in pod.started and name not in unlisted:
            continue
        given = given_to(pod, name, allocations)
        former = _former(container, pod, name, kept, runs)
        present, unclear = _present(given, now)
        where = f"{pod.namespace}/{pod.name}, container {name}"
        found.unresolved += tuple(f"{where}: {why}" for device, why in unclear.items() if device not in former)
        is_older = container in now.first_caps.older
        records = _hold(former, present, now, is_older=is_older)
        if records:
            caps_kept = tuple(records[at] for at in sorted(records))
            found.kept[container] = KeptContainer(pod_uid=pod.uids[0], name=name, caps=caps_kept)
        all_caps = {device: _cap(own, present.get(device), now) for device, own in records.items()}
        caps[name] = caps.get(name, {}) | all_caps
        if name in unlisted:
            continue
        if name not in sharing and container in pod.started and not any((uid, container) in now.ended for uid in pod.uids):
            alone.add(name)
        own = Grant(
            owner=Owner(namespace=pod.namespace, uid=f"{pod.uids[0]}/{name}"),
            devices=frozenset(device for allocation in given for device in allocation.devices) | former.keys(),
            caps={device: cap for device, cap in all_caps.items() if cap is not None},
            stray_cap=None if is_older else stray,
            is_gone=pod.is_gone,
        )
        containers = [ContainerId(pod_uid=uid, container=container) for uid in pod.uids]
        found.grants.update(dict.fromkeys(containers, own))
        found.pooled.update(containers if name in sharing else ())
        found.noticed += tuple(
            Noticed(Unit(containers[0], device), cap)
            for device, cap in own.caps.items()
            if cap.exemption is not None and (device not in former or records[device].notice != former[device].notice)
        )
    # In a sandbox nothing runs in a container's own cgroup: the pod's exemption ends with the last of its older containers.
    is_older = any(run in now.first_caps.older and pod.containers.get(run) not in alone for run in pod.started)
    portions = {name: _portions(given_to(pod, name, allocations)) for name in caps}
    others = {name: own for name, own in caps.items() if name not in alone}
    devices, sums = _rest(others, portions, {one for name in alone for one in portions[name]})
    rest = Grant(
        owner=Owner(namespace=pod.namespace, uid=pod.uids[0]),
        devices=devices,
        caps=sums,
        stray_cap=None if is_older else stray,
        is_gone=pod.is_gone,
    )
    found.rests.update({ContainerId(pod_uid=uid, container=""): rest for uid in pod.uids})


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


def _hold(
    former: Mapping[str, CapRecord], present: Mapping[str, CapRecord], now: CapTerms, *, is_older: bool
) -> dict[str, CapRecord]:
    """Return the caps to store for a container by device. One that is older than the first cap was started without one."""
    held = dict(former)
    for device, new in present.items():
        old = former.get(device) or (CapRecord(device=device, cap_bytes=None) if is_older else new)
        if new.cap_bytes is None:
            held[device] = old
        elif old.cap_bytes is None:
            since = now.now if device in former else now.first_caps.since
            held[device] = replace(old, notice=renew(old.notice, since=since, seconds=now.notice_seconds, now=now.now))
        else:
            held[device] = _higher(old, new)
    return held


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


def _rest(
    caps: Mapping[str, Mapping[str, Cap | None]], given: Mapping[str, set[_Portion]], taken: set[_Portion]
) -> tuple[frozenset[str], dict[str, Cap]]:
    """Return the devices that these containers were given beyond what is `taken`, and the sums of their caps there.

    `caps` and `given` are by the containers' names. What an init container had, the next begins with: it counts once. On a
    device where one of them has no cap there is none.
    """
    parts: dict[str, list[tuple[Cap | None, Fraction]]] = {}
    for name, own in sorted(caps.items()):
        for device in own.keys() | {portion.device for portion in given[name]}:
            portions = {portion for portion in given[name] if portion.device == device}
            if not portions or portions - taken:
                part = Fraction(len(portions - taken), len(portions)) if portions else Fraction(1)
                parts.setdefault(device, []).append((own.get(device), part))
        taken = taken | given[name]
    found: dict[str, Cap] = {}
    for device, several in parts.items():
        known = [(cap, part) for cap, part in several if cap is not None]
        if len(known) == len(several):
            found[device] = replace(
                next((cap for cap, _ in known if cap.exemption is not None), known[0][0]),
                bytes=int(sum(cap.bytes * part for cap, part in known)),
                tolerance_bytes=int(sum(cap.tolerance_bytes * part for cap, part in known)),
            )
    return frozenset(parts), found


def _portions(given: Iterable[Allocation]) -> set[_Portion]:
    return {
        _Portion(device, one.claim or one.resource, text)
        for one in given
        for device, text in zip(one.devices, one.ids, strict=True)
    }


def _is_lost(pod: PodView, held: Iterable[Allocation], now: CapTerms) -> bool:
    """Whether kubelet's files are younger than this pod, which runs: kubelet would not have started it without giving more.

    It gives every resource that it knows, and prepares every claim that a container uses. It knows no other name, and gives
    nothing for it. The devices of a claim whose driver left no checkpoint are unknown.
    """
    resources = {one.resource for one in held if one.claim is None}
    claims = {one.claim.name for one in held if one.claim is not None}
    return bool(
        (pod.resources & now.offered) - resources
        or any(one.resource in DRA_DRIVERS and not one.ids for one in held)
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

    None for the platform, for pods that admission leaves alone, and for pods of unknown namespaces.
    """
    if now.tenancy.admission is not AdmissionMode.DENY or pod.namespace in {"", *now.tenancy.platform}:
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
