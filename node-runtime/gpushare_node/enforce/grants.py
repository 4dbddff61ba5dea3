"""Grants: what each container may use, from kubelet's allocations, the pods and the pool's shares. Pure.

A container keeps the cap under which it was started: a policy that lowers it later holds for containers to come. One that
raises it, or takes it away, holds at once, for nobody is hurt by it. Whatever is not known gives no cap, and is said. A pod
that is ending is granted no more than others: its owner chooses how long that takes.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gpushare_node.guard.identity import ContainerId
from gpushare_node.guard.reading import Action, Cap, Grant
from gpushare_node.host.folder import KeptCap
from gpushare_node.host.kubelet import Allocation, is_gpu_resource
from gpushare_node.kube.cluster import PodView
from gpushare_node.nvml.driver import MigSurvey, Survey
from gpushare_node.policy import AdmissionMode, Policy, Share, Tenancy

_MIB = 1 << 20

Profiles = Mapping[str, str | None]
"""The devices that tenants can hold: uuid → MIG profile as policies write it, None for a whole GPU."""

Allocations = Mapping[tuple[str, str], tuple[Allocation, ...]]
"""Kubelet's allocations by pod uid and container name."""


@dataclass(frozen=True, kw_only=True)
class Granted:
    """What holds now. `caps` is to be remembered by container; `doubts` say which allocations have no cap, and why."""

    grants: Mapping[ContainerId, Grant]
    caps: Mapping[str, tuple[KeptCap, ...]]
    doubts: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Terms:
    """The present policy's side: shares by resource and profile, and what follows an offence."""

    shares: Mapping[tuple[str, str | None], Share]
    action: Action
    grace_seconds: int
    profiles: Profiles
    tenancy: Tenancy
    platform: frozenset[str]


def terms(policy: Policy, profiles: Profiles, platform: frozenset[str]) -> Terms:
    """The policy as grants need it. `platform` are the platform's namespaces."""
    return Terms(
        shares={(share.resource, share.profile): share for share in policy.shares},
        action=Action(policy.enforcement.action.value),
        grace_seconds=policy.enforcement.grace_seconds,
        profiles=profiles,
        tenancy=policy.tenancy,
        platform=platform,
    )


def profiles(surveys: Iterable[Survey], policy: Policy) -> Profiles:
    """What stands on the node, device by device. A split instance, and a GPU with a fault, are left out: nobody knows them."""
    wanted = {instance.profile_id: instance.profile for gpu in policy.gpus for instance in gpu.instances}
    found: dict[str, str | None] = {}
    for survey in surveys:
        if survey.fault is not None:
            continue
        if survey.mig is None or not survey.mig.current:
            found[survey.uuid] = None
        else:
            found.update(_instances(survey.mig, wanted))
    return found


def _instances(mig: MigSurvey, wanted: Mapping[int | None, str]) -> dict[str, str | None]:
    """The MIG devices with their profiles: by the driver's name, where it gives none by the policy's for the same id."""
    names = {profile.id: profile.name for profile in mig.profiles}
    found: dict[str, str | None] = {}
    for instance in mig.instances:
        name = names.get(instance.profile_id) or wanted.get(instance.profile_id)
        for compute in instance.compute:
            if name is not None and compute.is_whole and compute.uuid is not None:
                found[compute.uuid] = name
    return found


def by_container(allocations: Iterable[Allocation]) -> Allocations:
    """The allocations of GPUs in the order in which grants look for them."""
    found: dict[tuple[str, str], tuple[Allocation, ...]] = {}
    for one in filter(lambda one: is_gpu_resource(one.resource), allocations):
        key = (one.pod_uid, one.container)
        found[key] = (*found.get(key, ()), one)
    return found


def grant(
    pods: Iterable[PodView], allocations: Allocations, now: Terms, kept: Mapping[str, tuple[KeptCap, ...]]
) -> Granted:
    """The grants of every container that the API server and kubelet know, with the caps under which they were started.

    `kept` are the caps remembered so far. A static pod is granted under each of its uids: cgroups know it by another one.
    """
    grants: dict[ContainerId, Grant] = {}
    caps: dict[str, tuple[KeptCap, ...]] = {}
    doubts: list[str] = []
    for pod in pods:
        holds_share = any((uid, name) in allocations for uid in pod.uids for name in pod.containers.values())
        stray_cap = _stray_cap(pod, now, holds_share=holds_share)
        for container, name in pod.containers.items():
            if pod.has_ended and container not in pod.started:
                continue
            given = [one for uid in pod.uids for one in allocations.get((uid, name), ())]
            held, unclear = _hold(given, now, {cap.device: cap for cap in kept.get(container, ())})
            doubts += [f"{pod.namespace}/{pod.name}, container {name}: {doubt}" for doubt in unclear]
            if held:
                caps[container] = held
            devices = frozenset(device for one in given for device in one.devices)
            # Where it is not known what a device is, it is not known either which ones a container was not given.
            is_known = devices <= now.profiles.keys()
            own = Grant(devices=devices, caps=_caps(held, devices, now), stray_cap=stray_cap if is_known else None)
            grants.update({ContainerId(pod_uid=uid, container=container): own for uid in pod.uids})
    return Granted(grants=grants, caps=caps, doubts=tuple(doubts))


def _stray_cap(pod: PodView, now: Terms, *, holds_share: bool) -> Cap | None:
    """A cap of nothing, for tenants on devices that they were not given. Only where admission lets nobody reach those.

    None for the platform, for pods that are no tenants, and where claims may have given a pod more than the checkpoint says.
    """
    if now.tenancy.admission is not AdmissionMode.DENY or pod.namespace in now.platform or pod.has_claims:
        return None
    if not now.tenancy.has_tenant(pod.namespace, holds_share=holds_share):
        return None
    return Cap(bytes=0, action=now.action, grace_seconds=now.grace_seconds)


def _caps(held: Iterable[KeptCap], devices: frozenset[str], now: Terms) -> dict[str, Cap]:
    return {
        cap.device: Cap(
            bytes=cap.cap_bytes, tolerance_bytes=cap.tolerance_bytes, action=now.action, grace_seconds=now.grace_seconds)
        for cap in held
        if cap.cap_bytes is not None and cap.device in devices
    }  # fmt: skip


def _hold(given: Iterable[Allocation], now: Terms, kept: Mapping[str, KeptCap]) -> tuple[tuple[KeptCap, ...], list[str]]:
    """The caps of one container by device, the sum over its replicas; and what could not be found out."""
    sums: dict[str, KeptCap] = {}
    unclear: dict[str, str] = {}
    for one in given:
        for device, count in Counter(one.devices).items():
            share = _share(one.resource, device, now)
            if isinstance(share, str):
                unclear[device] = share
            else:
                sums[device] = _add(sums.get(device), _slices(device, share, count))
    found = {device: cap for device, cap in sums.items() if device not in unclear}
    held = {device: _higher(kept.get(device), cap) for device, cap in found.items()}
    held.update({device: cap for device, cap in kept.items() if device in unclear})
    return tuple(held[device] for device in sorted(held)), [text for device, text in unclear.items() if device not in kept]


def _share(resource: str, device: str, now: Terms) -> Share | str:
    """The share of this resource on this device; a sentence when there is none."""
    if device not in now.profiles:
        return f"{resource} was allocated on {device}, which is no device of this node now; no cap is held there"
    profile = now.profiles[device]
    share = now.shares.get((resource, profile))
    if share is None:
        return f"the policy has no share for {resource} on {profile or 'a whole GPU'} ({device}); no cap is held there"
    return share


def _slices(device: str, share: Share, count: int) -> KeptCap:
    if share.cap_mib is None:
        return KeptCap(device=device, cap_bytes=None)
    return KeptCap(
        device=device, cap_bytes=share.cap_mib * count * _MIB, tolerance_bytes=share.tolerance_mib * count * _MIB
    )


def _add(former: KeptCap | None, more: KeptCap) -> KeptCap:
    """Both together; no cap where one of them has none."""
    if former is None:
        return more
    if former.cap_bytes is None or more.cap_bytes is None:
        return KeptCap(device=more.device, cap_bytes=None)
    return KeptCap(
        device=more.device, cap_bytes=former.cap_bytes + more.cap_bytes,
        tolerance_bytes=former.tolerance_bytes + more.tolerance_bytes,
    )  # fmt: skip


def _higher(kept: KeptCap | None, new: KeptCap) -> KeptCap:
    """The cap that allows more."""
    if kept is None or new.cap_bytes is None:
        return new
    if kept.cap_bytes is None:
        return kept
    return max(kept, new, key=lambda cap: ((cap.cap_bytes or 0) + cap.tolerance_bytes, cap.cap_bytes or 0))
