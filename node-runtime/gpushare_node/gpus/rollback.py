"""The way back: what must go and come so that a GPU's former layout stands again. Pure."""

from collections.abc import Collection, Iterable

from gpushare_node.adapters.host.state_dir import FormerGpu, InstanceSpec
from gpushare_node.adapters.nvml.driver import GpuInfo, GpuInstance
from gpushare_node.core.structs import Struct
from gpushare_node.partition.state import Gpu


class RollbackPlan(Struct):
    """`gone` and `missing` are instances to be destroyed and made; the mode is switched, or a pending one called off."""

    gone: tuple[GpuInstance, ...]
    missing: tuple[InstanceSpec, ...]
    must_switch: bool
    must_cancel_pending: bool

    @property
    def is_needed(self) -> bool:
        """Whether anything is to be done."""
        return bool(self.gone or self.missing or self.must_switch or self.must_cancel_pending)

    def is_blocked(self, gpu: Gpu) -> bool:
        """Whether somebody uses what would have to go."""
        gone = {one.gi_id for one in self.gone}
        busy = {one.gi_id for one in (gpu.mig.instances if gpu.mig else ()) if one.is_busy}
        return bool(busy & gone) or (self.must_switch and (gpu.is_busy or bool(busy)))


def rollback_plan(former: FormerGpu, survey: GpuInfo, *, created: Collection[int], takes_all: bool) -> RollbackPlan:
    """From what stands to what stood. `created` are GPU instances that this run has made.

    What stands besides is destroyed only where it was made by us, stands in the way, or MIG goes off; with `takes_all`, after a
    run that died and cannot say what it made, all of it.
    """
    standing = survey.mig.instances if survey.mig is not None and survey.mig.current else ()
    kept = {one.gi_id for one in standing if is_whole(one) and instance_spec(one) in former.instances}
    there = {instance_spec(one) for one in standing if one.gi_id in kept}
    missing = tuple(one for one in former.instances if one not in there)
    takes_all = takes_all or not former.mig
    gone = [
        one for one in standing if one.gi_id not in kept and (takes_all or one.gi_id in created or _overlaps(one, missing))
    ]
    return RollbackPlan(
        gone=tuple(gone),
        missing=missing,
        must_switch=survey.mig is not None and survey.mig.current != former.mig,
        must_cancel_pending=survey.mig is not None and survey.mig.current == former.mig != survey.mig.pending,
    )


def former_of(survey: GpuInfo) -> FormerGpu:
    """What there is to go back to. Only whole instances: no others can be made again."""
    standing = survey.mig.instances if survey.mig is not None and survey.mig.current else ()
    return FormerGpu(
        uuid=survey.uuid,
        mig=survey.mig is not None and survey.mig.current,
        instances=tuple(instance_spec(one) for one in standing if is_whole(one)),
    )


def is_whole(instance: GpuInstance) -> bool:
    """Whether it holds one compute instance, of its whole size."""
    return [one.is_whole for one in instance.compute] == [True]


def instance_spec(instance: GpuInstance) -> InstanceSpec:
    """What is needed to make it again."""
    return InstanceSpec(profile_id=instance.profile_id, start=instance.start, size=instance.size)


def _overlaps(instance: GpuInstance, places: Iterable[InstanceSpec]) -> bool:
    end = instance.start + instance.size
    return any(instance.start < one.start + one.size and one.start < end for one in places)
