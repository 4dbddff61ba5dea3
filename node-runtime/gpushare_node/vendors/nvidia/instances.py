"""Instances: reads, creates and destroys the GPU and compute instances of a GPU, one at a time.

Owns NVML's handling of instances. Does not decide which instances should exist; retries nothing.
"""

import contextlib
import ctypes
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from gpushare_node.contract.struct import Struct
from gpushare_node.partition.state import Placement, Profile
from gpushare_node.vendors.driver import Code, ComputeInstance, DriverError, GpuInstance
from gpushare_node.vendors.nvidia.library import Handle, Library

_UNKNOWN_HERE = frozenset({Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT})
"""The card does not have this profile; or the driver is older than the number with which it was queried."""

_MAX_PLACEMENTS = 256
"""Far above any card. A larger count means that the driver returns garbage, and must not be allocated."""

_SUFFIXES = {
    7: "+me",
    8: "+me",
    10: "+gfx",
    11: "+gfx",
    12: "+gfx",
    13: "-me",
    14: "-me",
    15: "+me.all",
    16: "+me.all",
    17: "+gfx",
}
"""By the number with which a profile is queried (nvml.h: REV1, GFX, NO_ME, ALL_ME), as NVIDIA's device plugin writes them."""

_EIGHTHS = 8


class ProfileInfo(Struct):
    """A profile of this GPU with its number of compute slices, which a compute instance needs to fill it.

    The number with which a profile is queried is not its id, and NVML's count of instances is wrong on A30: neither leaves this
    module.
    """

    profile: Profile
    slices: int


def read_profiles(library: Library, handle: Handle, *, total_bytes: int | None) -> tuple[ProfileInfo, ...]:
    """Return every profile with its placements, in the driver's order. Empty if it lists none, as some do while MIG is off."""
    offers = []
    for number, info in _each(library, handle):
        name = _read_name(info) or _make_name(number, info.sliceCount, info.memorySizeMB, total_bytes)
        profile = Profile(id=info.id, name=name, placements=_read_placements(library, handle, info.id))
        offers.append(ProfileInfo(profile=profile, slices=info.sliceCount))
    return tuple(offers)


def read_slices(library: Library, handle: Handle, profile_id: int) -> int:
    """Return how many compute slices an instance of this profile has."""
    for _, info in _each(library, handle):
        if info.id == profile_id:
            return int(info.sliceCount)
    raise DriverError("nvmlDeviceGetGpuInstanceProfileInfo", Code.NOT_FOUND)


def each_profile(library: Library, call: str, of: Handle, count: int, *engines: int) -> Iterator[tuple[int, Any]]:
    """Yield the driver's info on each existing profile, with the number with which it was queried.

    In the version with a name, if the driver has it.
    """
    version = 2
    for number in range(count):
        try:
            try:
                info = library.call(call, of, number, *engines, version)
            except DriverError as problem:
                if problem.code != Code.FUNCTION_NOT_FOUND or version == 1:
                    raise
                version = 1
                info = library.call(call, of, number, *engines, version)
        except DriverError as problem:
            if problem.code in _UNKNOWN_HERE:
                continue
            raise
        yield number, info


def _each(library: Library, handle: Handle) -> Iterator[tuple[int, Any]]:
    return each_profile(library, "nvmlDeviceGetGpuInstanceProfileInfo", handle, library.names.NVML_GPU_INSTANCE_PROFILE_COUNT)


def _read_name(info: Any) -> str | None:
    try:
        name = str(getattr(info, "name", ""))
    except UnicodeDecodeError:
        return None
    return name.removeprefix("MIG ").strip() or None


def _make_name(number: int, slices: int, memory_mib: int, total_bytes: int | None) -> str | None:
    """Return the name as go-nvlib builds it (`mig_profile.go`), for drivers that return none: before R520.

    The memory is rounded up to eighths of the card, and these to whole GB.
    """
    if not total_bytes:
        return None
    eighths = -(-_EIGHTHS * memory_mib * (1 << 20) // total_bytes)
    gib = -(-total_bytes // (1 << 30))
    return f"{slices}g.{(2 * eighths * gib + _EIGHTHS) // (2 * _EIGHTHS)}gb{_SUFFIXES.get(number, '')}"


def _read_placements(library: Library, handle: Handle, profile_id: int) -> tuple[Placement, ...]:
    """Return all placements on the empty card, whatever instances exist now."""
    call = "nvmlDeviceGetGpuInstancePossiblePlacements"
    count = ctypes.c_uint()
    library.call(call, handle, profile_id, None, ctypes.byref(count))
    room = count.value
    if room > _MAX_PLACEMENTS:
        raise DriverError(call, Code.UNKNOWN)
    places = (library.names.c_nvmlGpuInstancePlacement_t * room)()
    library.call(call, handle, profile_id, places, ctypes.byref(count))
    if count.value > room:
        raise DriverError(call, Code.UNKNOWN)
    return tuple(Placement(start=place.start, size=place.size) for place in places[: count.value])


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
