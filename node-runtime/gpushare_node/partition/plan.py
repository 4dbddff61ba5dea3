"""PartitionPlan: the fewest operations that bring a node's GPUs from their current state to the policy's. Pure.

Owns which operations are needed, their order, and what must be idle for them. It executes nothing and calls nothing. A plan
follows from state and policy alone: after a crash, plan again from the state at that time.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from gpushare_node.contract.policy import DesiredGpu, DesiredInstance, ModeSwitch, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.partition.fitness import (
    UnfitError,
    check_card,
    check_fault,
    find_target,
    needs_modes,
    needs_switch,
)
from gpushare_node.partition.layout import Layout, LayoutError, resolve
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig, EnableMig, Operation
from gpushare_node.partition.placement import Place, PlacementProblem, place_instances
from gpushare_node.partition.state import Gpu, Instance, Mig, NodeGpus


class Unfit(Struct):
    """A GPU that the plan leaves alone. `detail` is the sentence for people."""

    index: int
    reason: ConditionReason
    detail: str


class GpuPlan(Struct):
    """The plan for one GPU. The operations are legal one by one in this order; if there are none, it matches the policy.

    No process may use the instances in `needs_idle` and, with `needs_idle_gpu`, the GPU; `is_blocked`: something uses them. If
    not `is_final`, the driver lists no placements before MIG is on: plan again after these operations.
    """

    index: int
    uuid: str
    operations: tuple[Operation, ...]
    needs_idle: tuple[Instance, ...] = ()
    needs_idle_gpu: bool = False
    is_blocked: bool = False
    is_final: bool = True


class PartitionPlan(Struct):
    """The plan for a node. Every GPU of state and policy is in `gpus` or in `unfit`, sorted by index."""

    gpus: tuple[GpuPlan, ...]
    unfit: tuple[Unfit, ...]

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Return all operations. Those of different GPUs do not depend on each other."""
        return tuple(operation for gpu in self.gpus for operation in gpu.operations)


def plan(state: NodeGpus, policy: Policy) -> PartitionPlan:
    """Plan every GPU by itself: one that is unfit does not block the others. Never raises, for any state and policy.

    It destroys as few instances as any choice among the driver's placements allows; of equal choices, the fewest in use. It
    destroys none if the right instances exist already, at any placement.
    """
    desired = {gpu.index: gpu for gpu in policy.gpus}
    gpus: list[GpuPlan] = []
    unfit: list[Unfit] = []
    for gpu in state.gpus:
        try:
            gpus.append(_plan_gpu(gpu, desired, state, policy))
        except UnfitError as error:
            unfit.append(Unfit(index=gpu.index, reason=error.reason, detail=str(error)))
    for index in desired.keys() - {gpu.index for gpu in state.gpus}:
        detail = f"the policy is for {len(desired)} GPUs; the node has none of this index"
        unfit.append(Unfit(index=index, reason=ConditionReason.GPU_COUNT_MISMATCH, detail=detail))
    return PartitionPlan(
        gpus=tuple(sorted(gpus, key=lambda one: one.index)), unfit=tuple(sorted(unfit, key=lambda one: one.index))
    )


def _plan_gpu(gpu: Gpu, desired: Mapping[int, DesiredGpu], state: NodeGpus, policy: Policy) -> GpuPlan:
    check_fault(gpu)
    check_card(gpu, policy.card)
    target = find_target(gpu, desired, state)
    instances, partition = target.instances, target.partition
    if partition is not None and needs_modes(gpu.modes, to=partition, by=policy.partitioner):
        before = "" if gpu.modes is None else gpu.modes.word
        change = ChangeModes(uuid=gpu.uuid, before=before, after=partition.word)
        return GpuPlan(index=gpu.index, uuid=gpu.uuid, operations=(change,), needs_idle_gpu=True, is_blocked=gpu.is_busy)
    if gpu.mig is not None and target.on_demand is not None:
        return _plan_on_demand(gpu, gpu.mig, target.on_demand)
    if gpu.mig is not None:
        return _plan_mig(gpu, gpu.mig, instances)
    if instances or target.on_demand is not None:
        raise UnfitError(ConditionReason.INVALID_LAYOUT, "the policy requires MIG instances; this GPU does not support MIG")
    return GpuPlan(index=gpu.index, uuid=gpu.uuid, operations=())


def _plan_on_demand(gpu: Gpu, mig: Mig, switch: ModeSwitch) -> GpuPlan:
    """Plan a GPU whose instances are the DRA driver's, also those that it does not know: it removes them when it starts."""
    is_switching = switch is ModeSwitch.RUNTIME and needs_switch(mig, to=True)
    return _gpu_plan(gpu, (EnableMig(uuid=gpu.uuid),) if is_switching else ())


def _plan_mig(gpu: Gpu, mig: Mig, desired: tuple[DesiredInstance, ...]) -> GpuPlan:
    """Plan a GPU that has MIG. A switch to on comes before changes to instances; a switch to off after they are destroyed."""
    is_switching = needs_switch(mig, to=bool(desired))
    standing = mig.instances if mig.current else ()
    if not desired:
        off = (DisableMig(uuid=gpu.uuid),) if is_switching else ()
        return _gpu_plan(gpu, (*_destroy(gpu, standing), *off))
    on = (EnableMig(uuid=gpu.uuid),) if is_switching else ()
    if not mig.profiles and not mig.current:
        return replace(_gpu_plan(gpu, on), is_final=False)
    layout = _resolve(desired, mig)
    kept, places = _choose(desired, layout, standing)
    # All destroys come before any create: slices, engines and counts are then free, whatever their limits.
    gone = _destroy(gpu, [instance for instance in standing if instance not in kept])
    new = [CreateInstance(uuid=gpu.uuid, profile_id=profile_id, start=start, size=size) for start, size, profile_id in places]
    return _gpu_plan(gpu, (*on, *gone, *new))


def _destroy(gpu: Gpu, instances: Sequence[Instance]) -> list[DestroyInstance]:
    in_order = sorted(instances, key=lambda instance: (instance.start, instance.gi_id))
    return [DestroyInstance(uuid=gpu.uuid, instance=instance) for instance in in_order]


def _gpu_plan(gpu: Gpu, operations: tuple[Operation, ...]) -> GpuPlan:
    """Return the plan with these operations, and with what must be idle for them."""
    destroyed = tuple(operation.instance for operation in operations if isinstance(operation, DestroyInstance))
    is_switching = any(isinstance(operation, EnableMig | DisableMig) for operation in operations)
    on_gpu = gpu.mig.instances if gpu.mig and gpu.mig.current else ()
    in_the_way = on_gpu if is_switching else destroyed
    is_disturbing = is_switching or bool(destroyed)
    return GpuPlan(
        index=gpu.index,
        uuid=gpu.uuid,
        operations=operations,
        needs_idle=destroyed,
        needs_idle_gpu=is_switching,
        is_blocked=any(instance.is_busy for instance in in_the_way) or (gpu.is_busy and is_disturbing),
    )


def _resolve(desired: tuple[DesiredInstance, ...], mig: Mig) -> Layout:
    if not mig.profiles:
        raise UnfitError(ConditionReason.GPU_UNREADABLE, "MIG is on, but the driver lists no profile for this GPU")
    try:
        return resolve(desired, mig.profiles)
    except LayoutError as error:
        raise UnfitError(ConditionReason.INVALID_LAYOUT, str(error)) from error


def _choose(
    desired: Sequence[DesiredInstance], layout: Layout, standing: Sequence[Instance]
) -> tuple[list[Instance], list[Place]]:
    """Return the instances that stay, and the places of the instances to create.

    Only whole instances can stay. They stay even if the driver's table lacks their place: their existence proves that it works.
    """
    able: dict[Place, Instance] = {
        (instance.start, instance.size, instance.profile_id): instance
        for instance in standing
        if instance.is_whole and instance.profile_id in layout.profile_ids and instance.start >= 0 and instance.size > 0
    }
    problem = PlacementProblem(
        places=layout.places | able.keys(),
        standing={place: instance.is_busy for place, instance in able.items()},
        preferred=layout.preferred,
    )
    places = place_instances(problem, layout.profile_ids)
    if places is None:
        requested = ", ".join(f"{count} {profile}" for profile, count in Counter(one.profile for one in desired).items())
        raise UnfitError(ConditionReason.INVALID_LAYOUT, f"the driver cannot place all of these together: {requested}")
    return [able[place] for place in places if place in able], [place for place in places if place not in able]
