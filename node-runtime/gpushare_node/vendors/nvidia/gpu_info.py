"""Reads GpuInfo: one GPU with everything that a plan needs, or the fault that prevents a plan.

A feature that the driver lacks is left out; an error makes the GPU unreadable. An error never counts as an absence: a GPU that
seems idle, or without MIG, would be changed while tenants use it.
"""

from ctypes import byref

from gpushare_node.contract.xids import RECOVERY_ACTIONS
from gpushare_node.partition.state import Fault, FaultKind
from gpushare_node.vendors.driver import SESSION_OVER, Code, ComputeMode, DriverError, GpuInfo, MigInfo
from gpushare_node.vendors.nvidia.instances import ProfileInfo, read_instances, read_profiles
from gpushare_node.vendors.nvidia.library import Handle, Library
from gpushare_node.vendors.nvidia.process_lists import ProcessLists

_ALL_ONES = (1 << 64) - 1
_ASKABLE_WITHOUT_MIG = 199
"""`NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE`: the driver lists its profiles while MIG is off."""

_RECOVERY_ACTION = 230
"""`NVML_FI_DEV_GET_GPU_RECOVERY_ACTION`, from driver 555 on."""

_FABRIC_DONE = 3

KeptOffers = dict[tuple[str, bool], tuple[ProfileInfo, ...]]
"""The profiles of a GPU, by UUID and whether MIG is on: they do not change in a session, and take most of a survey's calls."""


def survey_gpu(library: Library, index: int, *, prefers_detail: bool, kept: KeptOffers) -> GpuInfo:
    """Return the GPU at this index. DriverError only if the whole session is over.

    A GPU that does not even return its UUID gets the name `unknown-<index>`, so that none is missing and none appears twice.
    """
    uuid, name = f"unknown-{index}", ""
    try:
        handle = library.call("nvmlDeviceGetHandleByIndex", index)
        uuid = library.call("nvmlDeviceGetUUID", handle)
        name = library.call("nvmlDeviceGetName", handle)
        device_id, bus_id = _read_pci(library, handle)
        total_bytes, _ = read_memory(library, handle)
        return GpuInfo(
            index=index,
            uuid=uuid,
            name=name,
            pci_device_id=device_id,
            pci_bus_id=bus_id,
            memory_mib=None if total_bytes is None else total_bytes >> 20,
            compute_mode=_read_compute_mode(library, handle),
            is_fabric_ready=_read_fabric(library, handle),
            recovery=_read_recovery(library, handle),
            mig=_read_mig(library, handle, total_bytes, kept, uuid),
            pids=_read_pids(library, handle, prefers_detail=prefers_detail),
        )
    except DriverError as problem:
        if problem.code in SESSION_OVER:
            raise
        kind = FaultKind.LOST if problem.code == Code.GPU_IS_LOST else FaultKind.UNREADABLE
        return GpuInfo(index=index, uuid=uuid, name=name, fault=Fault(kind=kind, detail=str(problem)))


def read_memory(library: Library, handle: Handle) -> tuple[int | None, int | None]:
    """Return total bytes and allocated bytes, without the driver's reserve; None if the driver does not report them.

    The first version of the call counts the reserve as used, so only its total is usable.
    """
    memory = library.find("nvmlDeviceGetMemoryInfo", handle, library.names.nvmlMemory_v2)
    if memory is not None:
        return _known(memory.total), None if memory.used == _ALL_ONES else memory.used
    memory = library.find("nvmlDeviceGetMemoryInfo", handle)
    return None if memory is None else _known(memory.total), None


def _known(total_bytes: int) -> int | None:
    return None if total_bytes in (0, _ALL_ONES) else total_bytes


def _read_pci(library: Library, handle: Handle) -> tuple[str | None, str | None]:
    info = library.find("nvmlDeviceGetPciInfo", handle)
    if info is None:
        return None, None
    try:
        bus_id = info.busId or None
    except UnicodeDecodeError:
        bus_id = None
    return f"0x{info.pciDeviceId:08X}", bus_id


def _read_compute_mode(library: Library, handle: Handle) -> ComputeMode | None:
    mode = library.find("nvmlDeviceGetComputeMode", handle)
    return next((known for known in ComputeMode if known == mode), None)


def _read_fabric(library: Library, handle: Handle) -> bool | None:
    """Return whether NVLink through NVSwitches is set up (nvml.h, `nvmlGpuFabricInfoV_t`: 1 not started, 2 begun, 3 done).

    The driver answers from Hopper on; for others, and where no NVSwitch is, the state is 0 or the call is not supported.
    """
    info = library.names.c_nvmlGpuFabricInfo_v2_t()
    info.version = library.names.nvmlGpuFabricInfo_v2
    try:
        library.call("nvmlDeviceGetGpuFabricInfoV", handle, byref(info))
    except DriverError as problem:
        if problem.code in SESSION_OVER:
            raise
        return None
    return bool(info.state == _FABRIC_DONE and info.status == 0) if info.state else None


def _read_mig(library: Library, handle: Handle, total_bytes: int | None, kept: KeptOffers, uuid: str) -> MigInfo | None:
    """Return the MIG state; None for a card without MIG."""
    modes = library.find("nvmlDeviceGetMigMode", handle)
    if modes is None:
        return None
    if not all(mode in (0, 1) for mode in modes):
        raise DriverError("nvmlDeviceGetMigMode", Code.UNKNOWN)
    current, pending = map(bool, modes)
    if not current and not _tells_without_mig(library, handle):
        return MigInfo(current=current, pending=pending)
    offers = kept.get((uuid, current)) or read_profiles(library, handle, total_bytes=total_bytes)
    kept[uuid, current] = offers
    if current and not offers:
        # Instances are listed by profile: without any profile, the existing ones would not be found.
        raise DriverError("nvmlDeviceGetGpuInstanceProfileInfo", Code.NOT_SUPPORTED)
    instances = read_instances(library, handle, offers) if current else ()
    return MigInfo(current=current, pending=pending, instances=instances, profiles=tuple(offer.profile for offer in offers))


def _tells_without_mig(library: Library, handle: Handle) -> bool:
    return bool(_read_field(library, handle, _ASKABLE_WITHOUT_MIG))


def _read_recovery(library: Library, handle: Handle) -> str:
    action = _read_field(library, handle, _RECOVERY_ACTION)
    return RECOVERY_ACTIONS.get(action, f"recovery action {action}") if action else ""


def _read_field(library: Library, handle: Handle, field: int) -> int:
    """Return the value of this field; 0 if the driver does not know it."""
    values = library.find("nvmlDeviceGetFieldValues", handle, [field])
    return int(values[0].value.uiVal) if values is not None and values[0].nvmlReturn == 0 else 0


def _read_pids(library: Library, handle: Handle, *, prefers_detail: bool) -> tuple[tuple[int | None, int], ...]:
    rows = ProcessLists(library, prefers_detail=prefers_detail).read(handle)
    return tuple(dict.fromkeys((row.gpu_instance, row.pid) for row in rows))
