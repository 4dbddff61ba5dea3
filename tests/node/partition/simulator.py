"""What hardware does with an operation, and nothing else: everything that a driver would refuse is an AssertionError."""

from collections.abc import Iterable
from typing import assert_never

from gpushare_node.contract.struct import replace
from gpushare_node.partition.operations import ChangeModes, CreateInstance, DestroyInstance, DisableMig, EnableMig, Operation
from gpushare_node.partition.state import Gpu, Instance, Mig, NodeGpus, Profile


def simulate(state: NodeGpus, operation: Operation, told: tuple[Profile, ...] = ()) -> NodeGpus:
    """The state after the operation. `told` is the table of a driver that tells it only when MIG is on."""
    gpu, own = _find(state, operation)
    match operation:
        case EnableMig():
            _assert_idle(gpu, own)
            assert not (own.current and own.pending), "MIG is on already"
            own = replace(
                own, current=True, pending=True, profiles=own.profiles or told, instances=own.instances if own.current else ()
            )
        case DisableMig():
            _assert_idle(gpu, own)
            assert own.current or own.pending, "MIG is off already"
            assert not own.current or not own.instances, "MIG cannot be switched off under instances"
            own = replace(own, current=False, pending=False)
        case DestroyInstance():
            own = replace(own, instances=_without(gpu, own, operation.instance))
        case CreateInstance():
            own = replace(own, instances=(*own.instances, _created(own, operation, is_whole=True)))
        case ChangeModes():
            raise AssertionError("no driver divides a GPU of NVIDIA's by modes")
        case _:
            assert_never(operation)
    return _with(state, replace(gpu, mig=own))


def halfway(state: NodeGpus, operation: Operation) -> NodeGpus:
    """The state when the program dies in the middle: what consists of two calls to the driver has seen the first one."""
    gpu, own = _find(state, operation)
    match operation:
        case EnableMig() | DisableMig():
            own = replace(own, pending=isinstance(operation, EnableMig))
        case DestroyInstance():
            rest = _without(gpu, own, operation.instance)
            own = replace(own, instances=(*rest, replace(operation.instance, is_whole=False)))
        case CreateInstance():
            own = replace(own, instances=(*own.instances, _created(own, operation, is_whole=False)))
        case ChangeModes():
            raise AssertionError("no driver divides a GPU of NVIDIA's by modes")
        case _:
            assert_never(operation)
    return _with(state, replace(gpu, mig=own))


def run(state: NodeGpus, operations: Iterable[Operation], told: tuple[Profile, ...] = ()) -> NodeGpus:
    for operation in operations:
        state = simulate(state, operation, told)
    return state


def _find(state: NodeGpus, operation: Operation) -> tuple[Gpu, Mig]:
    (gpu,) = [gpu for gpu in state.gpus if gpu.uuid == operation.uuid]
    assert gpu.fault is None
    assert gpu.mig is not None
    return gpu, gpu.mig


def _with(state: NodeGpus, changed: Gpu) -> NodeGpus:
    return NodeGpus(gpus=tuple(changed if gpu.uuid == changed.uuid else gpu for gpu in state.gpus))


def _assert_idle(gpu: Gpu, own: Mig) -> None:
    assert not gpu.is_busy, "the GPU is in use"
    assert not any(instance.is_busy for instance in own.instances if own.current), "an instance of the GPU is in use"


def _without(gpu: Gpu, own: Mig, instance: Instance) -> tuple[Instance, ...]:
    assert own.current, "MIG is off"
    assert own.instances.count(instance) == 1, "no such instance"
    assert not instance.is_busy, "the instance is in use"
    assert not gpu.is_busy, "the GPU is in use"
    return tuple(one for one in own.instances if one != instance)


def _created(own: Mig, operation: CreateInstance, *, is_whole: bool) -> Instance:
    assert own.current, "MIG is off"
    assert own.pending, "MIG is about to go off"
    profiles = [profile for profile in own.profiles if profile.id == operation.profile_id]
    places = [(at.start, at.size) for profile in profiles for at in profile.placements]
    assert (operation.start, operation.size) in places, "the driver does not place this profile here"
    end = operation.start + operation.size
    for other in own.instances:
        assert other.start >= end or other.start + other.size <= operation.start, "the slices are taken"
    taken = {other.gi_id for other in own.instances}
    gi_id = next(number for number in range(1, len(taken) + 2) if number not in taken)
    return Instance(
        gi_id=gi_id,
        profile_id=operation.profile_id,
        start=operation.start,
        size=operation.size,
        is_whole=is_whole,
        is_busy=False,
    )
