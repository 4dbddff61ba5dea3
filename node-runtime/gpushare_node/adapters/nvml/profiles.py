"""Profiles: what the driver says of GPU-instance profiles: ids, sizes, names and places.

The number by which a profile is asked for is not its id, and NVML's count of instances is wrong on A30: neither leaves this
module.
"""

import ctypes
from collections.abc import Iterator
from typing import Any

from gpushare_node.adapters.nvml.driver import Code, DriverError
from gpushare_node.adapters.nvml.library import Handle, Library
from gpushare_node.core.structs import Struct
from gpushare_node.partition.state import Placement, Profile

_UNKNOWN_HERE = frozenset({Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT})
"""The card has not this profile; or the driver is older than the number by which it was asked for."""

_MOST_PLACEMENTS = 256
"""Far above any card. A larger count is a driver that writes nonsense, and not a size to allocate."""

_SUFFIXES = {
    7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 13: "-me", 14: "-me", 15: "+me.all", 16: "+me.all", 17: "+gfx",
}
"""By the number that a profile is asked for (nvml.h: REV1, GFX, NO_ME, ALL_ME), as NVIDIA's device plugin writes them."""

_EIGHTHS = 8


class ProfileInfo(Struct):
    """A profile of this GPU with what it takes to fill it: its compute slices."""

    profile: Profile
    slices: int


def read_offers(library: Library, handle: Handle, *, total_bytes: int | None) -> tuple[ProfileInfo, ...]:
    """Every profile with its places, in the driver's order. Empty where it does not tell, as some while MIG is off."""
    offers = []
    for number, info in _each(library, handle):
        name = _read_name(info) or _make_name(number, info.sliceCount, info.memorySizeMB, total_bytes)
        profile = Profile(id=info.id, name=name, placements=_read_placements(library, handle, info.id))
        offers.append(ProfileInfo(profile=profile, slices=info.sliceCount))
    return tuple(offers)


def read_slices(library: Library, handle: Handle, profile_id: int) -> int:
    """How many compute slices an instance of this profile has."""
    for _, info in _each(library, handle):
        if info.id == profile_id:
            return int(info.sliceCount)
    raise DriverError("nvmlDeviceGetGpuInstanceProfileInfo", Code.NOT_FOUND)


def each_profile(library: Library, call: str, of: Handle, count: int, *engines: int) -> Iterator[tuple[int, Any]]:
    """What the driver tells of each profile that there is, with the number by which it was asked for.

    In the version with a name where the driver has that.
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
    """The name as go-nvlib makes it (`mig_profile.go`) where the driver gives none: before R520.

    The memory is rounded up to eighths of the card, and these to whole GB.
    """
    if not total_bytes:
        return None
    eighths = -(-_EIGHTHS * memory_mib * (1 << 20) // total_bytes)
    gib = -(-total_bytes // (1 << 30))
    return f"{slices}g.{(2 * eighths * gib + _EIGHTHS) // (2 * _EIGHTHS)}gb{_SUFFIXES.get(number, '')}"


def _read_placements(library: Library, handle: Handle, profile_id: int) -> tuple[Placement, ...]:
    """All places on the empty card, whatever stands there now."""
    call = "nvmlDeviceGetGpuInstancePossiblePlacements"
    count = ctypes.c_uint()
    library.call(call, handle, profile_id, None, ctypes.byref(count))
    room = count.value
    if room > _MOST_PLACEMENTS:
        raise DriverError(call, Code.UNKNOWN)
    places = (library.names.c_nvmlGpuInstancePlacement_t * room)()
    library.call(call, handle, profile_id, places, ctypes.byref(count))
    if count.value > room:
        raise DriverError(call, Code.UNKNOWN)
    return tuple(Placement(start=place.start, size=place.size) for place in places[: count.value])
