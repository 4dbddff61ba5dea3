"""Session: AMD's driver as sysfs shows it; implements the Protocol `Driver`. It opens no device, so nothing waits for it.

The driver's reload, by which the config manager changes the memory mode, takes sysfs away for a while: then every call fails
with DRIVER_NOT_LOADED. `read_gpu` reads one GPU.
"""

import os
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from gpushare_node.contract.struct import Struct, replace
from gpushare_node.guard.process_list import PID_MAX, Device, MigInstance, ProcessEntry
from gpushare_node.partition.state import Fault, FaultKind, Modes
from gpushare_node.vendors.amd.sysfs import KfdNode, Sysfs, SysfsError, read_topology
from gpushare_node.vendors.driver import Code, DriverError, GpuDevice, GpuInfo, Observe, Versions, Xid, ignore

_DEVICES = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}
"""The devices of each compute mode. CPX makes one of each accelerator die: how many there are depends on the card."""

_PLATFORM = "devices/platform"
_PARTITION = "amdgpu_xcp"
"""With which the names of the platform devices of partitions begin, all but the first of each GPU."""


class NodeFacts(Struct):
    """What concerns all GPUs: their devices by PCI address, the partitions' names by render minor, and who uses them.

    `counts` is the number of devices of each GPU, by its PCI address.
    """

    nodes: Mapping[str, Sequence[KfdNode]]
    counts: Mapping[str, int]
    partitions: Mapping[int, str]
    pids: tuple[int, ...] = ()
    problems: tuple[str, ...] = ()


def read_facts(sysfs: Sysfs, addresses: Collection[str]) -> NodeFacts:
    """Return what concerns all GPUs. DriverError if the driver is not loaded."""
    topology = read_topology(sysfs, addresses)
    nodes: Mapping[str, Sequence[KfdNode]] = topology.nodes
    strange = sorted(nodes.keys() - set(addresses))
    problems = list(topology.problems)
    if strange:
        problems.append(f"KFD lists {', '.join(strange)}, which the driver does not have")
    counts = {address: len(some) for address, some in nodes.items()}
    pids: tuple[int, ...] = ()
    try:
        if topology.hidden:
            counts, nodes = _share_out(sysfs, addresses, topology.hidden + sum(counts.values())), {}
        pids = sysfs.pids()
    except SysfsError as error:
        problems.append(str(error))
    partitions = {}
    for name in sysfs.names(_PLATFORM):
        if name.startswith(_PARTITION):
            partitions.update(dict.fromkeys(_render_minors(sysfs, f"{_PLATFORM}/{name}"), name))
    return NodeFacts(nodes=nodes, counts=counts, partitions=partitions, pids=pids, problems=tuple(problems))


def _share_out(sysfs: Sysfs, addresses: Collection[str], total: int) -> dict[str, int]:
    """Return how many devices each GPU has by its mode; SysfsError if so many in total are not what the modes make."""
    found: dict[str, int] = {}
    divided = []
    for address in addresses:
        mode = sysfs.find(f"{sysfs.folder(address)}/current_compute_partition")
        if mode == "CPX":
            divided.append(address)
        else:
            found[address] = 1 if mode is None else _DEVICES.get(mode, 0)
    each, rest = divmod(total - sum(found.values()), len(divided) or total + 1)
    if rest or (divided and each < 2):
        raise SysfsError(f"KFD lists {total} devices, which the modes of the GPUs do not make")
    return found | dict.fromkeys(divided, each)


def read_gpu(sysfs: Sysfs, index: int, address: str, facts: NodeFacts) -> GpuInfo:
    """Return the GPU at this PCI address; with a fault if it is not known completely.

    A file that is absent, unreadable, or contradicts KFD makes the GPU unreadable, and so does an unknown list of processes:
    what is not known to be free counts as in use.

    A container that may not open the GPUs sees the modes, all processes, and the number of devices, but not which device is
    which.
    """
    uuid, name = f"amd-{address}", ""
    try:
        folder = sysfs.folder(address)
        uuid = _read_uuid(sysfs, folder) or uuid
        device_id = f"0x{sysfs.number(f'{folder}/device'):04X}{sysfs.number(f'{folder}/vendor'):04X}"
        name = sysfs.find(f"{folder}/product_name") or f"AMD GPU {device_id}"
        if facts.problems:
            raise SysfsError("; ".join(facts.problems))
        devices = _read_devices(sysfs, address, facts)
        modes = _read_modes(sysfs, folder, facts.counts[address])
        return GpuInfo(
            index=index,
            uuid=uuid,
            name=name,
            pci_device_id=device_id,
            pci_bus_id=address,
            memory_mib=sysfs.number(f"{folder}/mem_info_vram_total") >> 20 or None,
            modes=modes,
            devices=devices,
            is_hidden=not devices,
            # A process that has KFD open may use any GPU, and keeps the config manager from changing all of them.
            pids=tuple((None, pid) for pid in facts.pids),
        )
    except SysfsError as error:
        return GpuInfo(index=index, uuid=uuid, name=name, fault=Fault(kind=FaultKind.UNREADABLE, detail=str(error)))


def _device_id(node: KfdNode, own_minors: frozenset[int], facts: NodeFacts) -> str:
    """Return the id under which the device plugin offers a device: the GPU's PCI address, or its platform device's name."""
    if node.render_minor in own_minors:
        return node.address
    if node.render_minor not in facts.partitions:
        raise SysfsError(f"KFD lists renderD{node.render_minor}, which is no device of the driver")
    return facts.partitions[node.render_minor]


def _read_uuid(sysfs: Sysfs, folder: str) -> str | None:
    """Return the id that stays with the GPU; None if the driver gives none."""
    unique_id = sysfs.find(f"{folder}/unique_id")
    return f"amd-{unique_id.lower().removeprefix('0x')}" if unique_id else None


def _read_devices(sysfs: Sysfs, address: str, facts: NodeFacts) -> tuple[GpuDevice, ...]:
    nodes = facts.nodes.get(address, ())
    if not facts.counts.get(address):
        raise SysfsError(f"the driver has the GPU {address}, and KFD does not list it")
    # Of the GPU itself: of its first partition.
    own = frozenset(_render_minors(sysfs, sysfs.folder(address)))
    return tuple(GpuDevice(id=_device_id(node, own, facts), memory_mib=node.memory_mib) for node in nodes)


def _read_modes(sysfs: Sysfs, folder: str, devices: int) -> Modes | None:
    """Return the GPU's modes; None if it cannot be divided."""
    compute = sysfs.find(f"{folder}/current_compute_partition")
    if compute is None:
        if devices != 1:
            raise SysfsError(f"KFD lists {devices} devices of a GPU that cannot be divided")
        return None
    memory = sysfs.text(f"{folder}/current_memory_partition")
    expected = _DEVICES.get(compute)
    if (expected is None and compute != "CPX") or not memory.startswith("NPS"):
        raise SysfsError(f"the driver reports the modes {compute[:20]} and {memory[:20]}")
    if (expected is not None and devices != expected) or (compute == "CPX" and devices < 2):
        raise SysfsError(f"the driver reports the mode {compute}, and KFD lists {devices} devices")
    return Modes(
        compute=compute,
        memory=memory,
        devices=devices,
        available_compute=_offered(sysfs, f"{folder}/available_compute_partition"),
        available_memory=_offered(sysfs, f"{folder}/available_memory_partition"),
    )


def _offered(sysfs: Sysfs, path: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in (sysfs.find(path) or "").split(",") if word.strip())


def _render_minors(sysfs: Sysfs, folder: str) -> list[int]:
    names = (name.removeprefix("renderD") for name in sysfs.names(f"{folder}/drm") if name.startswith("renderD"))
    return [int(name) for name in names if name.isdecimal()]


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
