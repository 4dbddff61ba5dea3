"""The devices that NVIDIA's DRA driver publishes for GPUs, as the API server has them. Pure.

Facts: dra-driver-nvidia-gpu 0.5.0 (cmd/gpu-kubelet-plugin: deviceinfo.go, mig.go, partitions.go, consumable_shares.go). A GPU
under MIG is not published, only its MIG devices: those that exist or, on demand, every place for one, with what an instance
there takes of the GPU's counters. With shares every device may be allocated more than once, and of its memory, and its shares
if they are counted, a claim says how much it wants.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DRIVER = "gpu.nvidia.com"
MEMORY = "memory"
"""The setting `consumableShares` that shares by memory. Another one is a number of shares; empty: nothing is shared."""

Object = dict[str, Any]
_MIB = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU as NVML has it. `attributes`: the strings and versions that its MIG devices have too."""

    minor: int
    uuid: str
    memory_bytes: int
    attributes: Mapping[str, Object]


@dataclass(frozen=True, kw_only=True)
class MigDevice:
    """A MIG device: its instances' ids, the profile with its id, where it is, and what the profile gives it."""

    uuid: str
    gi: int
    ci: int
    profile: str
    profile_id: int
    start: int
    size: int
    memory_mib: int
    engines: Mapping[str, int]


def gpu_device(gpu: Gpu, shares: str) -> Object:
    """A whole GPU: the device, and what the driver's checkpoint has of it when it is prepared."""
    attributes = {"type": _text("gpu"), "uuid": _text(gpu.uuid), **gpu.attributes}
    device = {"name": f"gpu-{gpu.minor}", "attributes": attributes, "capacity": {MEMORY: _value(gpu.memory_bytes)}}
    return {"device": _shared(device, gpu.memory_bytes, shares), "uuid": gpu.uuid, "gpu": {"uuid": gpu.uuid}}


def mig_device(gpu: Gpu, mig: MigDevice, shares: str) -> Object:
    """The same of a MIG device. The slices of memory tell its place."""
    profile = re.sub("[^a-z0-9-]", "-", mig.profile.replace(".", ""))
    memory_bytes = mig.memory_mib * _MIB
    slices = {f"memorySlice{number}": 1 for number in range(mig.start, mig.start + mig.size)}
    capacity = {**mig.engines, MEMORY: memory_bytes, **slices}
    own = {"type": _text("mig"), "uuid": _text(mig.uuid), "parentUUID": _text(gpu.uuid), "profile": _text(mig.profile)}
    device = {
        "name": f"gpu-{gpu.minor}-mig-{profile}-{mig.profile_id}-{mig.start}",
        "attributes": {**gpu.attributes, **own},
        "capacity": {name: _value(value) for name, value in capacity.items()},
    }
    ids = {"parentMinor": gpu.minor, "giId": mig.gi, "ciId": mig.ci, "migUUID": mig.uuid, "parentUUID": gpu.uuid}
    return {"device": _shared(device, memory_bytes, shares), "uuid": mig.uuid, "mig": ids}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A profile of MIG devices, the places at which one can be, as start and size, and what it gives to it."""

    name: str
    id: int
    places: tuple[tuple[int, int], ...]
    memory_mib: int
    engines: Mapping[str, int]

    @property
    def capacity(self) -> dict[str, int]:
        """All that it gives but slices."""
        return {**self.engines, MEMORY: self.memory_mib * _MIB}


def place_device(gpu: Gpu, profile: Profile, start: int, size: int, shares: str) -> Object:
    """A place for an instance, which the driver makes on demand: it has no UUID."""
    name = re.sub("[^a-z0-9-]", "-", profile.name.replace(".", ""))
    own = {"type": _text("mig"), "parentUUID": _text(gpu.uuid), "profile": _text(profile.name)}
    device = {
        "name": f"gpu-{gpu.minor}-mig-{name}-{profile.id}-{start}",
        "attributes": {**gpu.attributes, **own},
        "capacity": {key: _value(value) for key, value in profile.capacity.items()},
        "consumesCounters": [{"counterSet": _set(gpu), "counters": _counters(profile.capacity, start, size)}],
    }
    place = {"gpu": gpu.uuid, "minor": gpu.minor, "profile": profile.id, "start": start}
    return {"device": _shared(device, profile.memory_mib * _MIB, shares), "minor": gpu.minor, "place": place}


def counter_set(gpu: Gpu, profiles: Sequence[Profile]) -> Object:
    """What the GPU has to give to instances: of each capacity as much as the profile that has most of it, and its slices."""
    most = {key: max(one.capacity[key] for one in profiles) for one in profiles for key in one.capacity}
    slices = max(start + size for one in profiles for start, size in one.places)
    return {"name": _set(gpu), "counters": _counters(most, 0, slices)}


def _set(gpu: Gpu) -> str:
    return f"gpu-{gpu.minor}-counter-set"


def _counters(capacity: Mapping[str, int], start: int, size: int) -> Object:
    """Capacities as counters, whose names are written in small letters, and one for each slice."""
    named = {re.sub("([A-Z])", r"-\1", key).lower(): value for key, value in capacity.items()}
    return {
        key: _value(value) for key, value in (named | {f"memory-slice-{at}": 1 for at in range(start, start + size)}).items()
    }


def _shared(device: Object, memory_bytes: int, shares: str) -> Object:
    if not shares:
        return device
    most = f"{memory_bytes // _MIB}Mi"
    least = "1Mi" if shares == MEMORY else "0"
    memory = {
        "value": most,
        "requestPolicy": {
            "default": most if shares == MEMORY else "0",
            "validRange": {"min": least, "max": most, "step": "1Mi"},
        },
    }
    capacity = {**device["capacity"], MEMORY: memory}
    if shares != MEMORY:
        policy = {"default": "1", "validRange": {"min": "1", "max": shares, "step": "1"}}
        capacity["shares"] = {"value": shares, "requestPolicy": policy}
    return {**device, "allowMultipleAllocations": True, "capacity": capacity}


def _text(value: str) -> Object:
    return {"string": value}


def _value(value: int) -> Object:
    return {"value": str(value)}
