"""Session: AMD's driver as sysfs shows it; implements the Protocol `Driver`. It opens no device, so nothing waits for it.

The driver's reload, by which the config manager changes the memory mode, takes sysfs away for a while: then every call fails
with DRIVER_NOT_LOADED.
"""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from gpushare_node.contract.struct import Struct, replace
from gpushare_node.guard.process_list import PID_MAX, Device, MigInstance, ProcessEntry
from gpushare_node.partition.state import Fault, FaultKind
from gpushare_node.vendors.amd.gpu_info import NodeFacts, read_facts, read_gpu
from gpushare_node.vendors.amd.sysfs import Sysfs, SysfsError
from gpushare_node.vendors.driver import Code, DriverError, GpuInfo, Observe, Versions, Xid, ignore


class _Kept(Struct):
    """What does not change of a GPU while its mode is `compute`; `gpu_ids` and `places` are in the order of its devices.

    Without `gpu_ids` its devices are hidden: then it is not known who uses them.
    """

    address: str
    compute: str | None
    total_bytes: int | None
    gpu_ids: tuple[int, ...]
    places: Mapping[int, MigInstance]


class Session:
    """See `Driver`. Different threads may read different GPUs."""

    def __init__(self, sysfs: Sysfs, *, pid_max: int) -> None:
        """Only for `open`."""
        self._sysfs = sysfs
        self._pid_max = pid_max
        self._kept: dict[str, _Kept] = {}

    @classmethod
    def open(cls, root: Path = Path("/sys"), observe: Observe = ignore, *, pid_max: int = PID_MAX) -> "Session":
        """Return a session over the sysfs in this folder. DriverError while the driver is not loaded."""
        sysfs = Sysfs(root, observe)
        sysfs.gpus()
        return cls(sysfs, pid_max=pid_max)

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def versions(self) -> Versions:
        """Return the version of the driver: its module's own, else the kernel's."""
        try:
            own = self._sysfs.find("module/amdgpu/version")
        except SysfsError:
            own = None
        return Versions(driver=own or os.uname().release, nvml="", cuda=None)

    def survey(self) -> tuple[GpuInfo, ...]:
        """Return every GPU, in the order of PCI addresses, as the config manager numbers them."""
        addresses = self._sysfs.gpus()
        facts = read_facts(self._sysfs, addresses)
        gpus = _distinct(tuple(read_gpu(self._sysfs, index, address, facts) for index, address in enumerate(addresses)))
        self._kept = {}
        for gpu in gpus:
            if gpu.fault is None:
                self._keep(gpu, facts)
        return gpus

    def count(self) -> int:
        """Return how many GPUs the driver lists."""
        return len(self._sysfs.gpus())

    def survey_gpu(self, index: int) -> GpuInfo:
        """Return one GPU; if it is not known completely, with a fault."""
        gpus = self.survey()
        if index >= len(gpus):
            raise DriverError(f"GPU {index}", Code.NOT_FOUND)
        return gpus[index]

    def read_device(self, uuid: str) -> Device:
        """Return the processes of the GPU's devices now. Of a GPU with a fault, or whose mode has changed, none is known."""
        if uuid not in self._kept:
            self.survey()
        kept = self._kept.get(uuid)
        if kept is None:
            return Device(uuid=uuid, total_bytes=None, rows=None, pid_max=self._pid_max)
        device = Device(uuid=uuid, total_bytes=kept.total_bytes, rows=None, instances=kept.places, pid_max=self._pid_max)
        try:
            if self._sysfs.find(f"{self._sysfs.folder(kept.address)}/current_compute_partition") != kept.compute:
                self._kept.pop(uuid, None)
                return device
            return replace(device, rows=tuple(self._rows(kept)) if kept.gpu_ids else None)
        except SysfsError:
            self._kept.pop(uuid, None)
            return device

    def _rows(self, kept: _Kept) -> list[ProcessEntry]:
        """Return who holds memory: every process that has KFD open is listed for all GPUs, mostly with nothing."""
        rows = []
        for pid in self._sysfs.pids():
            for number, gpu_id in enumerate(kept.gpu_ids):
                used = self._sysfs.used_bytes(pid, gpu_id)
                if used != 0:
                    rows.append(ProcessEntry(pid=pid, used_bytes=used, gpu_instance=number))
        return rows

    def _keep(self, gpu: GpuInfo, facts: NodeFacts) -> None:
        """Keep what `read_device` needs: topology is large, and mostly unchanged."""
        address = gpu.pci_bus_id or ""
        mib = [gpu.memory_mib if len(gpu.devices) == 1 and one.memory_mib is None else one.memory_mib for one in gpu.devices]
        self._kept[gpu.uuid] = _Kept(
            address=address,
            compute=None if gpu.modes is None else gpu.modes.compute,
            total_bytes=None if gpu.memory_mib is None else gpu.memory_mib << 20,
            gpu_ids=tuple(node.gpu_id for node in facts.nodes.get(address, ())),
            places={
                number: MigInstance(uuid=device.id, total_bytes=None if size is None else size << 20)
                for number, (device, size) in enumerate(zip(gpu.devices, mib, strict=True))
            },
        )

    def refresh(self) -> None:
        """Make the next reading of each GPU read the topology again."""
        self._kept = {}

    def unreliable(self) -> frozenset[str]:
        """Return none: the kernel's lists are whole."""
        return frozenset()

    def reset_compute_mode(self, uuid: str) -> None:
        """Raise NOT_SUPPORTED: AMD's GPUs have no such mode."""
        raise DriverError(f"reset the compute mode of {uuid}", Code.NOT_SUPPORTED)

    def has_memory_limits(self) -> bool:
        """Return False: a partition's memory is bounded by the kernel, that of a process in it is not."""
        return False

    def memory_limit(self, uuid: str, cgroup: str) -> int | None:
        """Raise NOT_SUPPORTED."""
        raise DriverError(f"read the limit of {cgroup} on {uuid}", Code.NOT_SUPPORTED)

    def set_memory_limit(self, uuid: str, cgroup: str, limit_bytes: int | None) -> None:
        """Raise NOT_SUPPORTED."""
        raise DriverError(f"set the limit of {cgroup} on {uuid} to {limit_bytes}", Code.NOT_SUPPORTED)

    def next_xid(self, timeout_ms: int) -> Xid | None:
        """Wait, and return None: sysfs reports no faults."""
        time.sleep(timeout_ms / 1000)
        return None


def _distinct(gpus: tuple[GpuInfo, ...]) -> tuple[GpuInfo, ...]:
    """Return the GPUs; those of one and the same unique id with a fault, because it does not identify them."""
    uuids = [gpu.uuid for gpu in gpus]
    return tuple(
        gpu
        if uuids.count(gpu.uuid) == 1
        else GpuInfo(
            index=gpu.index,
            uuid=f"{gpu.uuid}-{gpu.index}",
            name=gpu.name,
            fault=Fault(kind=FaultKind.UNREADABLE, detail=f"several GPUs have the unique id {gpu.uuid.removeprefix('amd-')}"),
        )
        for gpu in gpus
    )
