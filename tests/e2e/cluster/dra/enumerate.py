"""`python -m tests.e2e.cluster.dra.enumerate EDITS SHARES [on-demand]`: prints what the driver knows of this node, of NVML.

`EDITS` is what it lays into every container, in the form of the Container Device Interface, `SHARES` its `consumableShares`.
On demand it makes the instances of GPUs in MIG mode: so far for cards that it does not switch to that itself, before Hopper.
"""

import ctypes
import json
import sys
from collections.abc import Iterator
from typing import Any

import pynvml

from tests.e2e.cluster.dra.devices import (
    Gpu,
    MigDevice,
    Object,
    Profile,
    counter_set,
    gpu_device,
    mig_device,
    place_device,
)

_BRANDS = {pynvml.NVML_BRAND_NVIDIA: "Nvidia"}
_ARCHITECTURES = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")
"""By NVML's number less 2; go-nvlib's names."""
_MAX_PLACES = 64


def _known(edits: str, shares: str = "", *on_demand: str) -> Object:
    counters: list[Object] = []
    devices: list[Object] = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = Gpu(
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            attributes=_attributes(handle),
        )
        if not _is_under_mig(handle):
            devices.append(gpu_device(gpu, shares))
        elif on_demand:
            profiles = [_offered(handle, info) for info in _profiles(handle)]
            counters.append(counter_set(gpu, profiles))
            made = [place_device(gpu, profile, *place, shares) for profile in profiles for place in profile.places]
            devices += sorted(made, key=lambda one: one["device"]["name"])
        else:
            devices += [mig_device(gpu, mig, shares) for mig in _mig_devices(handle)]
    return {"edits": json.loads(edits), "onDemand": bool(on_demand), "counters": counters, "devices": devices}


def _attributes(handle: Any) -> dict[str, Object]:
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(handle)
    cuda = pynvml.nvmlSystemGetCudaDriverVersion()
    driver = ".".join(str(int(part)) for part in pynvml.nvmlSystemGetDriverVersion().split("."))
    texts = {
        "productName": pynvml.nvmlDeviceGetName(handle),
        "brand": _BRANDS[pynvml.nvmlDeviceGetBrand(handle)],
        "architecture": _ARCHITECTURES[pynvml.nvmlDeviceGetArchitecture(handle) - 2],
        "resource.kubernetes.io/pciBusID": pynvml.nvmlDeviceGetPciInfo(handle).busId.lower()[4:],
    }
    versions = {
        "cudaComputeCapability": f"{major}.{minor}.0",
        "driverVersion": driver,
        "cudaDriverVersion": f"{cuda // 1000}.{cuda % 1000 // 10}.0",
    }
    as_texts = {name: {"string": value} for name, value in texts.items()}
    return as_texts | {name: {"version": value} for name, value in versions.items()}


def _is_under_mig(handle: Any) -> bool:
    try:
        return bool(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return False


def _mig_devices(handle: Any) -> Iterator[MigDevice]:
    profiles = {info.id: info for info in _profiles(handle)}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError:
            continue  # NVML's list has holes
        gi = pynvml.nvmlDeviceGetGpuInstanceId(device)
        instance = pynvml.nvmlGpuInstanceGetInfo(pynvml.nvmlDeviceGetGpuInstanceById(handle, gi))
        profile = _profile(profiles[instance.profileId])
        yield MigDevice(
            uuid=pynvml.nvmlDeviceGetUUID(device),
            gi=gi,
            ci=pynvml.nvmlDeviceGetComputeInstanceId(device),
            profile=profile.name,
            profile_id=profile.id,
            start=instance.placement.start,
            size=instance.placement.size,
            memory_mib=profile.memory_mib,
            engines=profile.engines,
        )


def _profile(info: Any, *places: tuple[int, int]) -> Profile:
    name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
    engines = {
        "multiprocessors": info.multiprocessorCount,
        "copyEngines": info.copyEngineCount,
        "decoders": info.decoderCount,
        "encoders": info.encoderCount,
        "jpegEngines": info.jpegCount,
        "ofaEngines": info.ofaCount,
    }
    return Profile(name=name.removeprefix("MIG "), id=info.id, places=places, memory_mib=info.memorySizeMB, engines=engines)


def _offered(handle: Any, info: Any) -> Profile:
    """The profile with all its places on the empty GPU."""
    count, places = ctypes.c_uint(_MAX_PLACES), (pynvml.c_nvmlGpuInstancePlacement_t * _MAX_PLACES)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, info.id, places, ctypes.byref(count))
    return _profile(info, *((one.start, one.size) for one in places[: count.value]))


def _profiles(handle: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2)
        except pynvml.NVMLError:
            continue  # not of this card


pynvml.nvmlInit()
print(json.dumps(_known(*sys.argv[1:])))
