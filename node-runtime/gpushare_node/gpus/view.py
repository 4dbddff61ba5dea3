"""GpuView: a node's GPUs at one moment, what uses them, and the plan that follows from the policy. Pure.

Owns how the driver's surveys become the NodeGpus that plans are made from. Makes no calls and changes nothing.
"""

from collections.abc import Collection, Iterable, Mapping

from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.partition import PartitionPlan, plan
from gpushare_node.partition.state import Gpu, Instance, Mig, NodeGpus
from gpushare_node.reporting.outcome import Unmet
from gpushare_node.vendors import UUIDS
from gpushare_node.vendors.driver import ComputeMode, GpuInfo, GpuInstance, MigInfo


class GpuView(Struct):
    """The GPUs as surveyed. `compute_modes` are the GPUs, by UUID, whose compute mode keeps tenants out and must be reset.

    `servers` are the pids of MPS servers, by UUID of the GPUs that cannot be changed before these servers have ended. A server
    does not count as a use of a GPU, because it outlives its last client: it is left out of `surveys`.
    """

    surveys: tuple[GpuInfo, ...]
    state: NodeGpus
    plan: PartitionPlan
    compute_modes: frozenset[str] = frozenset()
    servers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def is_as_desired(self) -> bool:
        """Whether every GPU matches the policy, so that nothing must change."""
        return not (self.plan.operations or self.plan.unfit or self.compute_modes)

    @property
    def blocked(self) -> frozenset[str]:
        """The UUIDs of the GPUs that must change but cannot, because they are in use."""
        planned = {gpu.uuid for gpu in self.plan.gpus if gpu.is_blocked}
        return frozenset(planned | {gpu.uuid for gpu in self.state.gpus if gpu.is_busy and gpu.uuid in self.compute_modes})

    def survey(self, uuid: str) -> GpuInfo | None:
        """Return the survey of one GPU; None if there is none."""
        return next((survey for survey in self.surveys if survey.uuid == uuid), None)


def build_view(
    surveys: tuple[GpuInfo, ...],
    policy: Policy,
    *,
    allocated: frozenset[str],
    pending_modes: Mapping[str, bool],
    servers: Collection[int] = (),
) -> GpuView:
    """Return the view. `allocated` are UUIDs of GPUs and MIG devices that kubelet allocated to pods that have not ended.

    An id that is not a UUID, as some plugins use, may be any device: then every GPU counts as in use.
    `pending_modes` are the MIG modes that this runtime has requested, by GPU; `servers` the pids of MPS servers.
    """
    served = {survey.uuid: tuple(sorted({pid for _, pid in survey.pids if pid in servers})) for survey in surveys}
    surveys = tuple(replace(one, pids=tuple(row for row in one.pids if row[1] not in servers)) for one in surveys)
    state = NodeGpus(gpus=tuple(_gpu(survey, allocated, pending_modes) for survey in surveys))
    planned = plan(state, policy)
    fit = {gpu.uuid for gpu in planned.gpus}
    left = frozenset(one.uuid for one in surveys if one.uuid in fit and has_wrong_mode(one, policy))
    changing = left | {gpu.uuid for gpu in planned.gpus if gpu.operations}
    servers_in_the_way = {uuid: pids for uuid, pids in served.items() if pids and uuid in changing}
    return GpuView(surveys=surveys, state=state, plan=planned, compute_modes=left, servers=servers_in_the_way)


def registrable(surveys: tuple[GpuInfo, ...]) -> frozenset[str]:
    """Return the ids that the device plugin must offer: of whole GPUs without MIG, MIG devices, and AMD's devices."""
    found: set[str] = set()
    for survey in surveys:
        if survey.fault is not None or survey.is_hidden:
            continue
        if survey.devices:
            found |= {device.id for device in survey.devices}
        elif not survey.is_mig_on:
            found.add(survey.uuid)
        else:
            found |= {
                compute_instance.uuid
                for instance in survey.instances
                for compute_instance in instance.compute
                if compute_instance.uuid is not None
            }
    return frozenset(found)


def has_wrong_mode(survey: GpuInfo, policy: Policy) -> bool:
    """Whether a whole GPU's compute mode keeps tenants out: only MPS needs the exclusive one, and nothing the other."""
    if survey.compute_mode is None or survey.is_mig_on:
        return False
    allowed = {ComputeMode.DEFAULT, ComputeMode.EXCLUSIVE_PROCESS} if policy.mode.has_daemon else {ComputeMode.DEFAULT}
    return survey.compute_mode not in allowed


def _gpu(survey: GpuInfo, allocated: frozenset[str], pending_modes: Mapping[str, bool]) -> Gpu:
    mig, known = survey.mig, {instance.gi_id for instance in survey.instances}
    has_process = any(gi_id not in known for gi_id, _ in survey.pids)
    return Gpu(
        index=survey.index,
        uuid=survey.uuid,
        name=survey.name,
        pci_device_id=survey.pci_device_id,
        memory_mib=survey.memory_mib,
        mig=None if mig is None else _mig(survey, mig, allocated, pending_modes),
        is_busy=has_process or survey.uuid in allocated or not all(one.startswith(UUIDS) for one in allocated),
        fault=survey.fault,
        modes=survey.modes,
    )


def _mig(survey: GpuInfo, mig: MigInfo, allocated: frozenset[str], pending_modes: Mapping[str, bool]) -> Mig:
    busy = {gi_id for gi_id, _ in survey.pids}
    return Mig(
        current=mig.current,
        pending=mig.pending,
        is_pending_ours=pending_modes.get(survey.uuid) == mig.pending,
        instances=tuple(_instance(instance, instance.gi_id in busy, allocated) for instance in mig.instances),
        profiles=mig.profiles,
    )


def _instance(instance: GpuInstance, has_process: bool, allocated: frozenset[str]) -> Instance:
    return Instance(
        gi_id=instance.gi_id,
        profile_id=instance.profile_id,
        start=instance.start,
        size=instance.size,
        is_whole=len(instance.compute) == 1 and instance.compute[0].is_whole,
        is_busy=has_process or any(compute_instance.uuid in allocated for compute_instance in instance.compute),
    )


_FAULTS_WORST_FIRST = (
    ConditionReason.CARD_MISMATCH,
    ConditionReason.INVALID_LAYOUT,
    ConditionReason.PARTITION_MISMATCH,
    ConditionReason.GPU_COUNT_MISMATCH,
    ConditionReason.PENDING_FOREIGN_CHANGE,
    ConditionReason.GPU_LOST,
    ConditionReason.GPU_UNREADABLE,
)
"""Mistakes in the intent before hardware faults: only a person can fix them. A reason that is not listed comes last."""


def worst(view: GpuView) -> tuple[ConditionReason, str]:
    """Return the reason for the node, and a sentence that names every such GPU. There must be at least one."""
    worst_first = {reason: rank for rank, reason in enumerate(_FAULTS_WORST_FIRST)}
    unfit = sorted(view.plan.unfit, key=lambda one: (worst_first.get(one.reason, len(worst_first)), one.index))
    return unfit[0].reason, "; ".join(f"GPU {unfit_gpu.index}: {unfit_gpu.detail}" for unfit_gpu in unfit)


def find_fabric(surveys: Iterable[GpuInfo]) -> Unmet | None:
    """Return which GPUs wait for the fabric manager: their CUDA programs fail. Before Hopper the driver does not say."""
    unready = [str(one.index) for one in surveys if one.is_fabric_ready is False]
    text = f"NVLink of GPU {', '.join(unready)} is not set up"
    return Unmet(reason=ConditionReason.FABRIC_NOT_READY, message=text) if unready else None


def missing_gpus(view: GpuView) -> frozenset[int]:
    """Return the indexes of GPUs that offer nothing because they are dead or gone: the node may be used without them."""
    there = {survey.index for survey in view.surveys}
    dead = {
        unfit.index for unfit in view.plan.unfit if unfit.reason in (ConditionReason.GPU_LOST, ConditionReason.GPU_UNREADABLE)
    }
    counted = {unfit.index for unfit in view.plan.unfit if unfit.reason is ConditionReason.GPU_COUNT_MISMATCH}
    return frozenset(dead | (counted - there))


def is_converged(view: GpuView) -> bool:
    """Whether the GPUs that answer match the policy. One that is unfit without being dead or gone does not match."""
    is_done = not view.plan.operations and not view.compute_modes and bool(view.plan.gpus)
    return is_done and {unfit_gpu.index for unfit_gpu in view.plan.unfit} == missing_gpus(view)
