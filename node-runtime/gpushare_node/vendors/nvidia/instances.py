"""Instances: reads, creates and destroys the GPU and compute instances of a GPU, one at a time.

Owns NVML's handling of instances. Does not decide which instances should exist; retries nothing.
"""

import contextlib
import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpushare_node.vendors.driver import Code, ComputeInstance, DriverError, GpuInstance
from gpushare_node.vendors.nvidia.library import Handle, Library
from gpushare_node.vendors.nvidia.profiles import ProfileInfo, each_profile, read_slices

_ROOM = 64
"""More than any card has instances: NVML does not get the size of the buffer, and its own count is wrong on A30."""

_HOLES = frozenset({Code.NOT_FOUND, Code.INVALID_ARGUMENT})
"""The codes for a gap in the indexes of MIG devices."""


def read_instances(library: Library, handle: Handle, offers: Sequence[ProfileInfo]) -> tuple[GpuInstance, ...]:
    """Return every GPU instance by id, including those of a profile that the driver's list lacks.

    DriverError if there is a MIG device whose compute instance is not listed: its GPU instance would seem to be empty.
    """
    handles = {}
    kind = library.names.c_nvmlGpuInstance_t
    for offer in offers:
        for instance in _list(library, "nvmlDeviceGetGpuInstances", kind, handle, offer.profile.id):
            info = library.call("nvmlGpuInstanceGetInfo", instance)
            handles[int(info.id)] = (instance, info)
    devices = {(gi_id, ci_id) for _, gi_id, ci_id in each_mig_device(library, handle)}
    for gi_id in {gi_id for gi_id, _ in devices}:
        if gi_id not in handles:
            instance = library.call("nvmlDeviceGetGpuInstanceById", handle, gi_id)
            handles[gi_id] = (instance, library.call("nvmlGpuInstanceGetInfo", instance))
    slices = {offer.profile.id: offer.slices for offer in offers}
    found = tuple(
        GpuInstance(
            gi_id=gi_id,
            profile_id=info.profileId,
            start=info.placement.start,
            size=info.placement.size,
            compute=_read_compute(library, instance, slices.get(info.profileId)),
        )
        for gi_id, (instance, info) in sorted(handles.items())
    )
    if devices - {(one.gi_id, compute.ci_id) for one in found for compute in one.compute}:
        raise DriverError("nvmlGpuInstanceGetComputeInstances", Code.NOT_FOUND)
    return found


def each_mig_device(library: Library, handle: Handle) -> Iterator[tuple[Handle, int, int]]:
    """Yield every MIG device with the ids of its GPU and compute instance. Slow on a busy GPU: seconds have been observed."""
    for index in range(min(library.call("nvmlDeviceGetMaxMigDeviceCount", handle), _ROOM)):
        try:
            device = library.call("nvmlDeviceGetMigDeviceHandleByIndex", handle, index)
        except DriverError as problem:
            if problem.code in _HOLES:
                continue
            raise
        yield device, library.call("nvmlDeviceGetGpuInstanceId", device), library.call("nvmlDeviceGetComputeInstanceId", device)


def create_instance(library: Library, handle: Handle, *, profile_id: int, start: int, size: int) -> int:
    """Create a GPU instance at exactly this placement, and return its id. If it is elsewhere, destroy it and raise."""
    placed = "nvmlDeviceCreateGpuInstanceWithPlacement"
    desired = library.names.c_nvmlGpuInstancePlacement_t(start, size)
    try:
        instance = library.call(placed, handle, profile_id, ctypes.byref(desired))
    except DriverError as problem:
        if problem.code != Code.FUNCTION_NOT_FOUND:
            raise
        # The driver chooses the placement itself: on a card that is filled from its largest instances down, that is often
        # the desired one, and it is checked below.
        instance = library.call("nvmlDeviceCreateGpuInstance", handle, profile_id)
    try:
        info = library.call("nvmlGpuInstanceGetInfo", instance)
        if (info.profileId, info.placement.start, info.placement.size) != (profile_id, start, size):
            raise DriverError(placed, Code.FUNCTION_NOT_FOUND if not library.has(placed) else Code.UNKNOWN)
    except DriverError:
        # No other code knows its id, so no other code could destroy it.
        with contextlib.suppress(DriverError):
            library.call("nvmlGpuInstanceDestroy", instance)
        raise
    return int(info.id)


def create_compute(library: Library, handle: Handle, gi_id: int) -> None:
    """Create the compute instance that fills the whole GPU instance."""
    instance = library.call("nvmlDeviceGetGpuInstanceById", handle, gi_id)
    slices = read_slices(library, handle, library.call("nvmlGpuInstanceGetInfo", instance).profileId)
    for profile_id, width in _each_compute_profile(library, instance):
        if width == slices:
            library.call("nvmlGpuInstanceCreateComputeInstance", instance, profile_id)
            return
    raise DriverError("nvmlGpuInstanceGetComputeInstanceProfileInfo", Code.NOT_FOUND)


def destroy_compute(library: Library, handle: Handle, gi_id: int, ci_id: int) -> None:
    """Destroy a compute instance; if it does not exist, that is not an error."""
    with _gone_is_well():
        instance = library.call("nvmlDeviceGetGpuInstanceById", handle, gi_id)
        library.call("nvmlComputeInstanceDestroy", library.call("nvmlGpuInstanceGetComputeInstanceById", instance, ci_id))


def destroy_instance(library: Library, handle: Handle, gi_id: int) -> None:
    """Destroy a GPU instance; if it does not exist, that is not an error."""
    with _gone_is_well():
        library.call("nvmlGpuInstanceDestroy", library.call("nvmlDeviceGetGpuInstanceById", handle, gi_id))


@contextlib.contextmanager
def _gone_is_well() -> Iterator[None]:
    try:
        yield
    except DriverError as problem:
        if problem.code != Code.NOT_FOUND:
            raise


def _read_compute(library: Library, instance: Handle, slices: int | None) -> tuple[ComputeInstance, ...]:
    found = {}
    for profile_id, width in _each_compute_profile(library, instance):
        kind = library.names.c_nvmlComputeInstance_t
        for compute in _list(library, "nvmlGpuInstanceGetComputeInstances", kind, instance, profile_id):
            info = library.call("nvmlComputeInstanceGetInfo_v2", compute)
            found[int(info.id)] = (width, info.device)
    is_alone = len(found) == 1
    return tuple(
        ComputeInstance(ci_id=ci_id, is_whole=is_alone and width == slices, uuid=_read_uuid(library, device))
        for ci_id, (width, device) in sorted(found.items())
    )


def _read_uuid(library: Library, device: Handle) -> str | None:
    if not device:
        return None
    try:
        return str(library.call("nvmlDeviceGetUUID", device))
    except DriverError as problem:
        if problem.code == Code.NOT_FOUND:
            return None
        raise


def _each_compute_profile(library: Library, instance: Handle) -> Iterator[tuple[int, int]]:
    """Yield the id and the slices of each profile of compute instances; 0: all share the GPU instance's engines."""
    count = library.names.NVML_COMPUTE_INSTANCE_PROFILE_COUNT
    for _, info in each_profile(library, "nvmlGpuInstanceGetComputeInstanceProfileInfo", instance, count, 0):
        yield int(info.id), int(info.sliceCount)


def _list(library: Library, call: str, kind: Any, of: Handle, profile_id: int) -> Iterable[Handle]:
    """Return the handles that one of NVML's list calls returns for a profile."""
    room, count = (kind * _ROOM)(), ctypes.c_uint()
    library.call(call, of, profile_id, room, ctypes.byref(count))
    if count.value > _ROOM:
        raise DriverError(call, Code.UNKNOWN)
    return list(room[: count.value])
