"""What blocks a change: pods that hold devices, and processes; and which resources a new label removes. Pure.

A device is in use if a process runs on it *or* if kubelet has allocated it to a pod that has not ended: an idle pod would
later use a UUID that no longer exists.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL, PodView
from gpushare_node.backends.backend import NO_CHECKPOINT, Checkpoint, CheckpointError, NodeBackend
from gpushare_node.contract.policy import Mode, Policy
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.gpus.view import GpuView
from gpushare_node.partition.plan import GpuPlan
from gpushare_node.reporting.outcome import join_first
from gpushare_node.vendors import DRA_DRIVERS, UUIDS, is_gpu_resource, names_gpus, of
from gpushare_node.vendors.driver import GpuInfo

_MAX_NAMED = 5
_ANY, _NOT_IN_CHECKPOINT, _UNLISTED_CLAIM, _UNPREPARED = "any", "not_listed", "unlisted_claim", "unprepared"
_PART = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}[^/]")
"""What other programs call a part of a GPU contains the UUID of one and more; which GPU it is they decide themselves."""
_INSTANCE = re.compile("gpu-[0-9]+-mig-.+-([0-9]+)-([0-9]+)")
"""The DRA driver's name of a MIG instance, with the id of its profile, and its place."""
_UNKNOWN = {
    _ANY: f"{NO_CHECKPOINT}, so any pod that requests GPUs may hold any of them",
    _NOT_IN_CHECKPOINT: "a running pod that requests GPUs is not in kubelet's checkpoint, and may hold any of them",
    _UNLISTED_CLAIM: "a pod has a claim that is not in kubelet's list of claims, and may hold any GPU",
}
"""The device of a pod whose devices are unknown, and why. It is no UUID, so the pod blocks every GPU."""


class DeviceHolder(Struct):
    """A pod that holds devices. `pod` None: it is unknown which pod it is, and whether it has ended, or it is gone.

    `claimed` are those of its resources that it has by claims: DeviceClasses.
    """

    pod_uid: str
    pod: PodView | None
    devices: frozenset[str]
    resources: frozenset[str]
    claimed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The pod's name in messages."""
        return f"pod uid {self.pod_uid}" if self.pod is None else f"pod {self.pod.namespace}/{self.pod.name}"

    def may_hold(self, devices: Collection[str]) -> bool:
        """Return whether it can hold one of these. An id that is not a UUID, as of some plugins, can be any device."""
        return bool(devices) and not all(
            device.startswith(UUIDS) and not _PART.search(device) and device not in devices for device in self.devices
        )


def find_holders(checkpoint: Checkpoint, pods: Sequence[PodView] | None) -> tuple[DeviceHolder, ...]:
    """Return the pods that hold devices. Read the checkpoint before the pods: then no new pod is missed.

    With pods unknown (None) every allocation counts. Otherwise a plugin's allocations of pods that are gone or have ended do
    not count: kubelet keeps them in its file. A claim is in kubelet's other file for as long as it is prepared, and for good
    if its driver was removed: then it counts while its pod is there. Only GPUs count, of any program, not the devices of
    network plugins.

    A new node has no checkpoint, and no pod that requests GPUs. A kubelet whose folder was emptied has no checkpoint until a
    plugin registers again, while its pods run on; the checkpoint that it writes then does not contain them.
    """
    known = {uid: pod for pod in pods or () for uid in pod.uids}
    found: dict[str, DeviceHolder] = {}
    for allocation in checkpoint.allocations:
        pod = known.get(allocation.pod_uid)
        is_over = pods is not None and (pod is None or pod.has_ended)
        if not allocation.may_be_gpus or (is_over and (allocation.claim is None or not allocation.ids)):
            continue
        resources = frozenset({allocation.resource})
        before = found.get(allocation.pod_uid)
        found[allocation.pod_uid] = DeviceHolder(
            pod_uid=allocation.pod_uid,
            pod=pod,
            devices=(before.devices if before else frozenset()) | set(allocation.devices or (_UNPREPARED,)),
            resources=(before.resources if before else frozenset()) | resources,
            claimed=(before.claimed if before else frozenset()) | (frozenset() if allocation.claim is None else resources),
        )
    return (*found.values(), *_find_asking(checkpoint, pods or (), frozenset(found)))


def without_lost(holders: Iterable[DeviceHolder], view: GpuView) -> tuple[DeviceHolder, ...]:
    """Return the holders without MIG instances that no GPU has, and that are known by their names alone.

    After a reboot the DRA driver knows no claim any more, and kubelet knows no UUID: instances are gone then.
    """
    places = {(one.profile_id, one.start) for survey in view.surveys if survey.mig is not None for one in survey.mig.instances}

    def is_lost(device: str) -> bool:
        match = _INSTANCE.fullmatch(device)
        return match is not None and (int(match.group(1)), int(match.group(2))) not in places

    return tuple(
        replace(one, devices=frozenset(device for device in one.devices if not is_lost(device))) if one.claimed else one
        for one in holders
    )


def _find_asking(checkpoint: Checkpoint, pods: Iterable[PodView], listed: frozenset[str]) -> Iterator[DeviceHolder]:
    """Yield the pods of which the checkpoint lacks what they request, as holders of an unknown device.

    `listed` are the uids of pods with devices. The checkpoint lists a pod's claims one by one, whatever their drivers. A
    running pod has its claims, also if kubelet's list is missing: a DRA driver may serve the GPUs of any node.
    """
    device = _NOT_IN_CHECKPOINT if checkpoint.is_there else _ANY
    claims = {(one.pod_uid, one.claim.name) for one in checkpoint.allocations if one.claim is not None}
    for pod in pods:
        if pod.has_ended:
            continue
        is_running = pod.phase == "Running"
        resources = claimed = frozenset[str]()
        if (is_running or not checkpoint.is_there) and listed.isdisjoint(pod.uids):
            resources = frozenset(filter(names_gpus, pod.resources))
        if (is_running or not (checkpoint.has_claims or checkpoint.is_there)) and any(
            claims.isdisjoint((uid, claim.name) for uid in pod.uids) for claim in pod.claims
        ):
            claimed = DRA_DRIVERS
        if resources or claimed:
            held = frozenset([device] * bool(resources) + [_UNLISTED_CLAIM] * bool(claimed))
            yield DeviceHolder(pod_uid=pod.uids[0], pod=pod, devices=held, resources=resources | claimed, claimed=claimed)


def asks_for_gpus(pod: PodView) -> bool:
    """Return whether the pod holds GPUs, or was promised some and may get them at any moment."""
    return not pod.has_ended and any(map(is_gpu_resource, pod.resources))


def find_allocated(holders: Iterable[DeviceHolder]) -> frozenset[str]:
    """Return the UUIDs that pods hold."""
    return frozenset(device for holder in holders for device in holder.devices)


class Blocker(Struct):
    """What blocks a change: the pods, and a message that names them or the processes on the GPUs.

    `devices` are the ones that no pod may hold, `resources` those whose holders a new label disturbs.
    """

    holders: tuple[DeviceHolder, ...]
    message: str
    devices: frozenset[str]
    resources: frozenset[str]

    def is_left_by(self, holders: Iterable[DeviceHolder]) -> bool:
        """Return whether pods blocked the change, and none of `holders` does."""
        return bool(self.holders) and not _in_the_way(holders, self.devices, self.resources)


def find_blocker(
    view: GpuView,
    holders: Sequence[DeviceHolder],
    affected: Collection[str],
    name: Callable[[Collection[int]], Mapping[int, str]] = lambda _: {},
    further: Collection[str] = (),
) -> Blocker | None:
    """Return what blocks the plan, or the removal of the `affected` resources; None if nothing does. `name` names processes.

    No pod may hold one of the `further` devices either.

    An MPS server does not block: it ends when its control daemon sees the new label, and `HardwareChange` waits for that.
    """
    by_uuid = {survey.uuid: survey for survey in view.surveys}
    blocked = [gpu for gpu in view.plan.gpus if gpu.uuid in view.blocked]
    disturbing = [gpu for gpu in view.plan.gpus if gpu.needs_idle or gpu.needs_idle_gpu]
    devices = frozenset(uuid for gpu in disturbing for uuid in _affected(gpu, by_uuid.get(gpu.uuid))) | view.compute_modes
    devices |= frozenset(further)
    held = _in_the_way(holders, devices, affected)
    if not held and not blocked:
        return None
    names = [holder.name for holder in held] or _name_processes(blocked, by_uuid, name)
    text = join_first(names, _MAX_NAMED) or f"an unknown process on GPU {', '.join(str(gpu.index) for gpu in blocked)}"
    text += "".join(f"; {why}" for device, why in _UNKNOWN.items() if any(device in holder.devices for holder in held))
    return Blocker(holders=held, message=text, devices=devices, resources=frozenset(affected))


def find_devices(surveys: Iterable[GpuInfo]) -> frozenset[str]:
    """Return the UUIDs of these GPUs and of their instances."""
    found = set()
    for survey in surveys:
        parts = survey.mig.instances if survey.mig is not None else ()
        found |= {survey.uuid, *(compute.uuid for one in parts for compute in one.compute if compute.uuid is not None)}
    return frozenset(found)


def _name_processes(
    blocked: Sequence[GpuPlan], by_uuid: Mapping[str, GpuInfo], name: Callable[[Collection[int]], Mapping[int, str]]
) -> list[str]:
    pids = {gpu.index: _pids(gpu, by_uuid.get(gpu.uuid)) for gpu in blocked}
    known = name([pid for each in pids.values() for pid in each][:_MAX_NAMED])
    return [f"{known.get(pid, f'process {pid}')} on GPU {index}" for index, each in pids.items() for pid in each]


def _in_the_way(
    holders: Iterable[DeviceHolder], devices: Collection[str], resources: Collection[str]
) -> tuple[DeviceHolder, ...]:
    return tuple(holder for holder in holders if holder.may_hold(devices) or not holder.resources.isdisjoint(resources))


def _affected(gpu: GpuPlan, survey: GpuInfo | None) -> tuple[str, ...]:
    """Return the UUIDs that the plan of a GPU destroys: those of the instances that it removes, or all."""
    if survey is None or survey.mig is None:
        return (gpu.uuid,)
    gone = {instance.gi_id for instance in gpu.needs_idle}
    instances = [one for one in survey.mig.instances if gpu.needs_idle_gpu or one.gi_id in gone]
    return (gpu.uuid, *(compute.uuid for one in instances for compute in one.compute if compute.uuid is not None))


def _pids(gpu: GpuPlan, survey: GpuInfo | None) -> list[int]:
    """Return the processes on the instances that are removed or unknown; on the whole GPU if its mode changes."""
    gone = {instance.gi_id for instance in gpu.needs_idle}
    pids = survey.pids if survey is not None else ()
    return sorted({pid for gi_id, pid in pids if gpu.needs_idle_gpu or gi_id is None or gi_id in gone})


def find_affected(
    former: Policy | None, policy: Policy, labels: Mapping[str, str], offered: Mapping[str, int]
) -> frozenset[str]:
    """Return the resources whose holders the label alone disturbs: a name that goes, fewer replicas, any change of MPS.

    Without a former policy of ours, what the node offers now (`offered`) decides, and the label for how it is shared. A label
    that is already set disturbs no pod.
    """
    if policy.profile and labels.get(PLUGIN_LABEL, "")[:-2] == policy.profile:
        return frozenset()
    now = dict(policy.resources)
    if former is None:
        if policy.mode.has_daemon or labels.get(of(policy.vendor).sharing_label) == Mode.MPS:
            return frozenset(offered)
        return frozenset(name for name, count in offered.items() if now.get(name, 0) < count)
    if policy.profile and former.profile == policy.profile:
        return frozenset()
    if former.mode.has_daemon or policy.mode.has_daemon:
        # The control daemon restarts with its config, which ends every client.
        return frozenset(name for name, _ in former.resources)
    replicas = {(share.resource, share.profile): share.replicas for share in policy.shares}
    return frozenset(one.resource for one in former.shares if replicas.get((one.resource, one.profile), 0) < one.replicas)


class AllocatedDevices(Struct):
    """UUIDs of GPUs and MIG devices. `problem`: why they are not known; empty if they are."""

    devices: frozenset[str]
    problem: str = ""


def read_allocated(backend: NodeBackend) -> AllocatedDevices:
    """Return the devices in the checkpoint. Pods that have ended stay in it, and count, because no API server is used."""
    try:
        checkpoint = backend.read_checkpoint()
    except CheckpointError as error:
        return AllocatedDevices(devices=frozenset(), problem=str(error))
    if not checkpoint.is_there and checkpoint.has_kubelet:
        return AllocatedDevices(devices=frozenset(), problem=f"{NO_CHECKPOINT}, and no API server is used")
    return AllocatedDevices(devices=find_allocated(find_holders(checkpoint, None)))
