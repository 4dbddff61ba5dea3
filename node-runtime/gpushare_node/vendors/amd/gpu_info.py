"""Reads GpuInfo: one GPU with everything that a plan needs, or the fault that prevents a plan.

A file that is absent, unreadable, or contradicts KFD makes the GPU unreadable, and so does an unknown list of processes: what
is not known to be free counts as in use.

A container that may not open the GPUs sees the modes, all processes, and the number of devices, but not which device is which.
"""

from collections.abc import Collection, Mapping, Sequence

from gpushare_node.contract.struct import Struct
from gpushare_node.partition.state import Fault, FaultKind, Modes
from gpushare_node.vendors.amd.sysfs import KfdNode, Sysfs, SysfsError, read_topology
from gpushare_node.vendors.driver import GpuDevice, GpuInfo

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
    """Return the GPU at this PCI address; with a fault if it is not known completely."""
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


def _own_minors(sysfs: Sysfs, address: str) -> frozenset[int]:
    """Return the render minors of the GPU itself: of its first partition."""
    return frozenset(_render_minors(sysfs, sysfs.folder(address)))


def _read_uuid(sysfs: Sysfs, folder: str) -> str | None:
    """Return the id that stays with the GPU; None if the driver gives none."""
    unique_id = sysfs.find(f"{folder}/unique_id")
    return f"amd-{unique_id.lower().removeprefix('0x')}" if unique_id else None


def _read_devices(sysfs: Sysfs, address: str, facts: NodeFacts) -> tuple[GpuDevice, ...]:
    nodes = facts.nodes.get(address, ())
    if not facts.counts.get(address):
        raise SysfsError(f"the driver has the GPU {address}, and KFD does not list it")
    own = _own_minors(sysfs, address)
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
