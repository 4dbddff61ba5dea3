"""Profiles: the driver's GPU-instance profiles: ids, sizes, names and placements.

The number with which a profile is queried is not its id, and NVML's count of instances is wrong on A30: neither leaves this
module.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

from gpushare_node.contract.struct import Struct
from gpushare_node.partition.state import Placement, Profile
from gpushare_node.vendors.driver import Code, DriverError
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
    """A profile of this GPU with its number of compute slices, which a compute instance needs to fill it."""

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
