"""RollbackPlan: what must be destroyed and created to restore a GPU's former layout. Pure."""

from collections.abc import Collection, Iterable

from gpushare_node.adapters.host.state_dir import FormerGpu, InstanceSpec
from gpushare_node.contract.struct import Struct
from gpushare_node.partition.state import Gpu
from gpushare_node.vendors.driver import GpuInfo, GpuInstance


class RollbackPlan(Struct):
    """`gone` and `missing` are instances to destroy and to create; the mode is switched, or a pending one cancelled."""

    gone: tuple[GpuInstance, ...]
    missing: tuple[InstanceSpec, ...]
    must_switch: bool
    must_cancel_pending: bool

    @property
    def is_needed(self) -> bool:
        """Whether the rollback must change anything."""
        return bool(self.gone or self.missing or self.must_switch or self.must_cancel_pending)

    def is_blocked(self, gpu: Gpu) -> bool:
        """Whether a process uses what the rollback must destroy or switch."""
        gone = {one.gi_id for one in self.gone}
        busy = {one.gi_id for one in (gpu.mig.instances if gpu.mig else ()) if one.is_busy}
        return bool(busy & gone) or (self.must_switch and (gpu.is_busy or bool(busy)))


def rollback_plan(former: FormerGpu, survey: GpuInfo, *, created: Collection[int], takes_all: bool) -> RollbackPlan:
    """Return the plan from the current to the former layout. `created` are GPU instances that this run has created.

    Other instances are destroyed only if this run created them, if they overlap a missing one, or if MIG is switched off; with
    `takes_all`, after a run that crashed and cannot report what it created, all of them are.
    """
    standing = survey.instances
    kept = {one.gi_id for one in standing if is_whole(one) and instance_spec(one) in former.instances}
    there = {instance_spec(one) for one in standing if one.gi_id in kept}
    missing = tuple(one for one in former.instances if one not in there)
    takes_all = takes_all or not former.mig
    gone = [
        instance
        for instance in standing
        if instance.gi_id not in kept and (takes_all or instance.gi_id in created or _overlaps(instance, missing))
    ]
    return RollbackPlan(
        gone=tuple(gone),
        missing=missing,
        must_switch=survey.mig is not None and survey.mig.current != former.mig,
        must_cancel_pending=survey.mig is not None and survey.mig.current == former.mig != survey.mig.pending,
    )


def former_of(survey: GpuInfo) -> FormerGpu:
    """Return the layout that a rollback restores. Only whole instances, because no others can be created again."""
    return FormerGpu(
        uuid=survey.uuid,
        mig=survey.is_mig_on,
        instances=tuple(instance_spec(instance) for instance in survey.instances if is_whole(instance)),
    )


def is_whole(instance: GpuInstance) -> bool:
    """Whether it contains exactly one compute instance, of its whole size."""
    return [compute_instance.is_whole for compute_instance in instance.compute] == [True]


def instance_spec(instance: GpuInstance) -> InstanceSpec:
    """Return what is needed to create it again."""
    return InstanceSpec(profile_id=instance.profile_id, start=instance.start, size=instance.size)


def _overlaps(instance: GpuInstance, places: Iterable[InstanceSpec]) -> bool:
    end = instance.start + instance.size
    return any(instance.start < place.start + place.size and place.start < end for place in places)
