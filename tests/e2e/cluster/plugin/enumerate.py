"""Prints the GPUs of this node as JSON: what the device plugin asks NVML for."""

import json
from ctypes import byref, c_uint

import pynvml


def _devices(handle: object) -> list[tuple[str, str]]:
    found = []
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        try:
            device = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
        except pynvml.NVMLError:
            continue  # NVML's list has holes
        found.append((_profile(handle, pynvml.nvmlDeviceGetGpuInstanceId(device)), pynvml.nvmlDeviceGetUUID(device)))
    return found


def _profile(handle: object, gpu_instance: int) -> str:
    """The name of the profile of this GPU instance, without its prefix."""
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number, version=2)
        except pynvml.NVMLError:
            continue
        instances = (pynvml.c_nvmlGpuInstance_t * max(1, info.instanceCount))()
        count = c_uint(0)
        pynvml.nvmlDeviceGetGpuInstances(handle, info.id, instances, byref(count))
        if any(pynvml.nvmlGpuInstanceGetInfo(instances[one]).id == gpu_instance for one in range(count.value)):
            name = info.name.decode() if isinstance(info.name, bytes) else str(info.name)
            return name.removeprefix("MIG ")
    raise LookupError(f"GPU instance {gpu_instance} has no profile")


pynvml.nvmlInit()
gpus = []
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    try:
        is_mig = pynvml.nvmlDeviceGetMigMode(handle)[0] == 1
    except pynvml.NVMLError:
        is_mig = False
    gpus.append(
        {
            "uuid": pynvml.nvmlDeviceGetUUID(handle),
            "mig": is_mig,
            "devices": _devices(handle) if is_mig else [],
            "memory_mib": pynvml.nvmlDeviceGetMemoryInfo(handle).total >> 20,
        }
    )
print(json.dumps(gpus))
