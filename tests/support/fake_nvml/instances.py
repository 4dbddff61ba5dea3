"""Instances that another tool has left on a GPU: written into the state as the library would have made them."""

import ctypes
from typing import Any

COMPUTE_PROFILES = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
"""The compute-instance profile of so many slices."""


def add(state: Any, gpu: int, profile_id: int, start: int, cis: int) -> int:
    """A GPU instance, its slices dealt out evenly to so many compute instances; its id. ValueError where it cannot stand."""
    own = state.gpus[gpu]
    number, profile, size = _placed(own, profile_id, start)
    gi = 0 if size == own.units else next(free for free in range(1, len(own.instances)) if not own.instances[free].exists)
    instance = own.instances[gi]
    ctypes.memset(ctypes.addressof(instance), 0, ctypes.sizeof(instance))
    state.serial += 1
    instance.exists, instance.profile, instance.start, instance.size, instance.serial = 1, number, start, size, state.serial
    for ci in range(cis):
        slices, compute = profile.slices // cis, instance.computes[ci]
        state.serial += 1
        compute.index = _free_index(own)
        compute.exists, compute.serial, compute.uuid = 1, state.serial, _mig_uuid(gpu, state.serial)
        compute.profile_id, compute.start, compute.size = COMPUTE_PROFILES[slices], ci * slices, slices
    return gi


def _placed(own: Any, profile_id: int, start: int) -> tuple[int, Any, int]:
    found = [(number, one) for number, one in enumerate(own.profiles) if one.exists and one.id == profile_id]
    if not own.mig_current or not found:
        raise ValueError(f"no instance of profile {profile_id} on a GPU without it, or with MIG off")
    number, profile = found[0]
    sizes = [place.size for place in profile.placements[: profile.placement_count] if place.start == start]
    existing = [one for one in own.instances if one.exists]
    if not sizes or any(instance.start < start + sizes[0] and start < instance.start + instance.size for instance in existing):
        raise ValueError(f"no place for profile {profile_id} at {start}")
    return number, profile, sizes[0]


def _free_index(own: Any) -> int:
    taken = {compute.index for instance in own.instances if instance.exists for compute in instance.computes if compute.exists}
    return next(index for index in range(len(taken) + 1) if index not in taken)


def _mig_uuid(gpu: int, serial: int) -> bytes:
    """As `name` in compute.c makes it."""
    return f"MIG-{serial * 2654435761 % 2**32:08x}-51c0-5000-8000-{gpu << 24 | serial:012x}".encode()
