"""`python -m tests.e2e.cluster.dra.enumerate EDITS [SHARES]`: prints what the driver knows of this node: it reads NVML.

`EDITS` is what it lays into every container, in the form of the Container Device Interface, `SHARES` its `consumableShares`.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import pynvml

from tests.e2e.cluster.dra.devices import Gpu, MigDevice, Object, gpu_device, mig_device

_BRANDS = {pynvml.NVML_BRAND_NVIDIA: "Nvidia"}
_ARCHITECTURES = ("Kepler", "Maxwell", "Pascal", "Volta", "Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell")
"""By NVML's number less 2; go-nvlib's names."""


def _enumerate(shares: str = "") -> Iterator[Object]:
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = Gpu(
            minor=pynvml.nvmlDeviceGetMinorNumber(handle),
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            memory_bytes=pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            attributes=_attributes(handle),
        )
        if _is_under_mig(handle):
            yield from (mig_device(gpu, mig, shares) for mig in _mig_devices(handle))
        else:
            yield gpu_device(gpu, shares)


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
        profile = profiles[instance.profileId]
        name = profile.name.decode() if isinstance(profile.name, bytes) else str(profile.name)
        yield MigDevice(
            uuid=pynvml.nvmlDeviceGetUUID(device),
            gi=gi,
            ci=pynvml.nvmlDeviceGetComputeInstanceId(device),
            profile=name.removeprefix("MIG "),
            profile_id=profile.id,
            start=instance.placement.start,
            size=instance.placement.size,
            memory_mib=profile.memorySizeMB,
            engines={
                "multiprocessors": profile.multiprocessorCount,
                "copyEngines": profile.copyEngineCount,
                "decoders": profile.decoderCount,
                "encoders": profile.encoderCount,
                "jpegEngines": profile.jpegCount,
                "ofaEngines": profile.ofaCount,
            },
        )


def _profiles(handle: Any) -> Iterator[Any]:
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            yield pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2)
        except pynvml.NVMLError:
            continue  # not of this card


pynvml.nvmlInit()
print(json.dumps({"devices": [*_enumerate(*sys.argv[2:])], "edits": json.loads(sys.argv[1])}))
