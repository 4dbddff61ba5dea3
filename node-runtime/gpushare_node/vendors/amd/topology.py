"""KFD's topology: a node for each device that the driver makes of a GPU: the GPU itself, or each partition.

The location of a node is the GPU's PCI bus, device and function. With several nodes of a GPU some kernels number them in the
four highest bits, others in those of the function (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c), so that the function
counts only where several GPUs have one slot. A container may not read the nodes of GPUs that it may not open: then it only
sees how many there are.
"""

from collections.abc import Collection, Mapping

from gpushare_node.contract.struct import Struct
from gpushare_node.vendors.amd.sysfs import Sysfs, SysfsError
from gpushare_node.vendors.driver import Code, DriverError

_HEAP_PUBLIC, _HEAP_PRIVATE = 1, 2
_PCI_BITS = 0xFFFF


class KfdNode(Struct):
    """A device of a GPU. `gpu_id` identifies it in the files of processes, `render_minor` its device file renderD…."""

    gpu_id: int
    address: str
    render_minor: int
    memory_mib: int | None


class Topology(Struct):
    """The devices by the PCI address of their GPU, how many must not be read, and why others could not be read."""

    nodes: Mapping[str, list[KfdNode]]
    hidden: int
    problems: tuple[str, ...]


def read_topology(sysfs: Sysfs, addresses: Collection[str]) -> Topology:
    """Return the topology. `addresses` are those of the GPUs that the driver has. DriverError as for `Sysfs`."""
    found: dict[str, list[KfdNode]] = {}
    problems, hidden = [], 0
    for folder in sysfs.nodes():
        try:
            node = _read(sysfs, folder, addresses)
        except DriverError as error:
            if error.code != Code.NO_PERMISSION:
                raise
            hidden += 1
            continue
        except SysfsError as error:
            problems.append(str(error))
            continue
        if node is not None:
            found.setdefault(node.address, []).append(node)
    minors = [node.render_minor for nodes in found.values() for node in nodes]
    twice = sorted({minor for minor in minors if minors.count(minor) > 1})
    problems += [f"KFD lists renderD{minor} twice" for minor in twice]
    return Topology(nodes=found, hidden=hidden, problems=tuple(problems))


def _read(sysfs: Sysfs, folder: str, addresses: Collection[str]) -> KfdNode | None:
    """Return the node; None if it is a processor's."""
    gpu_id = sysfs.number(f"{folder}/gpu_id")
    if gpu_id == 0:
        return None
    properties = _properties(sysfs, f"{folder}/properties")
    try:
        location, domain, minor = (properties[name] for name in ("location_id", "domain", "drm_render_minor"))
    except KeyError as error:
        raise SysfsError(f"{folder}/properties has no {error.args[0]}") from error
    pci = location & _PCI_BITS
    slot = f"{domain:04x}:{pci >> 8:02x}:{pci >> 3 & 0x1F:02x}."
    there = [one for one in addresses if one.startswith(slot)]
    address = there[0] if len(there) == 1 else f"{slot}{pci & 7}"
    return KfdNode(gpu_id=gpu_id, address=address, render_minor=minor, memory_mib=_memory_mib(sysfs, folder))


def _memory_mib(sysfs: Sysfs, folder: str) -> int | None:
    """Return the memory of the node's own banks; None if none is listed."""
    banks = [_properties(sysfs, f"{folder}/mem_banks/{bank}/properties") for bank in sysfs.names(f"{folder}/mem_banks")]
    sizes = [one.get("size_in_bytes", 0) for one in banks if one.get("heap_type") in (_HEAP_PUBLIC, _HEAP_PRIVATE)]
    return sum(sizes) >> 20 or None


def _properties(sysfs: Sysfs, path: str) -> dict[str, int]:
    """Return the numbers in a file of lines with a name and a number."""
    found = {}
    for line in sysfs.text(path).splitlines():
        name, _, value = line.strip().partition(" ")
        if value.isdecimal():
            found[name] = int(value)
    return found
