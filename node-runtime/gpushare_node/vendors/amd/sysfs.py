"""Sysfs: the files of sysfs under a folder, with errors that say which file and why. Decides nothing."""

import errno
import os
import re
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from time import monotonic
from typing import TypeVar

from gpushare_node.contract.struct import Struct
from gpushare_node.vendors.driver import Code, DriverError, Observe

_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_GPUS = "module/amdgpu/drivers/pci:amdgpu"
_NODES = "class/kfd/kfd/topology/nodes"
_PROCESSES = "class/kfd/kfd/proc"
_MAX_BYTES = 1 << 16
"""More than any of these files has: a page."""

_T = TypeVar("_T")


class SysfsError(Exception):
    """A file of one GPU that is absent, unreadable, or contradicts another. The text is a sentence for people."""


class Sysfs:
    """The host's sysfs. Paths are relative to its folder."""

    def __init__(self, root: Path, observe: Observe) -> None:
        self._root = str(root)
        self._observe = observe

    def gpus(self) -> tuple[str, ...]:
        """Return the PCI addresses of the GPUs that the driver has, in order. DriverError if it is not loaded."""
        names = self._call(_GPUS, lambda: self._list(_GPUS))
        return tuple(sorted(name for name in names if _ADDRESS.fullmatch(name)))

    def nodes(self) -> tuple[str, ...]:
        """Return the folders of KFD's nodes. DriverError if there is no KFD, or if the driver is being loaded."""
        names = self._call(_NODES, lambda: self._list(_NODES))
        return tuple(f"{_NODES}/{name}" for name in sorted(names, key=lambda name: (len(name), name)))

    def pids(self) -> tuple[int, ...]:
        """Return the processes that have KFD open, on whichever GPU. SysfsError if that is not known."""
        try:
            names = self._list(_PROCESSES)
        except OSError as error:
            raise SysfsError(f"the processes on the GPUs cannot be read: {_PROCESSES}: {error.strerror}") from error
        if not all(name.isdecimal() for name in names):
            raise SysfsError(f"the processes on the GPUs cannot be read: {_PROCESSES} lists {', '.join(sorted(names))[:80]}")
        return tuple(sorted(map(int, names)))

    def used_bytes(self, pid: int, gpu_id: int) -> int | None:
        """Return how much memory of a node a process holds: 0 if it has ended, None if that is unknown."""
        try:
            return int(self._read(f"{_PROCESSES}/{pid}/vram_{gpu_id}"))
        except FileNotFoundError:
            return None if Path(f"{self._root}/{_PROCESSES}/{pid}").is_dir() else 0
        except (OSError, ValueError):
            return None

    def folder(self, address: str) -> str:
        """Return the folder of a GPU."""
        return f"{_GPUS}/{address}"

    def text(self, path: str) -> str:
        """Return what the file has, without spaces around it. SysfsError if it is not readable."""
        text = self.find(path)
        if text is None:
            raise SysfsError(f"{path} cannot be read: {os.strerror(errno.ENOENT)}")
        return text

    def find(self, path: str) -> str | None:
        """Return what the file has; None if it does not exist. SysfsError if it is not readable."""
        try:
            return self._read(path).decode().strip()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            if error.errno in (errno.EPERM, errno.EACCES):
                raise DriverError(path, Code.NO_PERMISSION) from error
            raise SysfsError(f"{path} cannot be read: {error.strerror}") from error
        except UnicodeDecodeError as error:
            raise SysfsError(f"{path} is not text") from error

    def number(self, path: str) -> int:
        """Return the number in the file, decimal or after 0x. SysfsError if it has none."""
        text = self.text(path)
        try:
            return int(text, 0)
        except ValueError as error:
            raise SysfsError(f"{path} has no number, but {text[:40]!r}") from error

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder; none if it does not exist."""
        try:
            return tuple(sorted(self._list(path)))
        except OSError:
            return ()

    def _call(self, path: str, call: Callable[[], _T]) -> _T:
        """Return the answer. DriverError, with the path, if the folder is absent or unreadable."""
        began, code = monotonic(), None
        try:
            return call()
        except OSError as error:
            absent = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENODEV)
            denied = error.errno in (errno.EPERM, errno.EACCES)
            code = Code.DRIVER_NOT_LOADED if absent else Code.NO_PERMISSION if denied else Code.OPERATING_SYSTEM
            raise DriverError(path, code) from error
        finally:
            self._observe(path, monotonic() - began, code)

    def _list(self, path: str) -> list[str]:
        """Return the names in a folder. OSError."""
        with os.scandir(f"{self._root}/{path}") as entries:
            return [entry.name for entry in entries]

    def _read(self, path: str) -> bytes:
        """Return what the file has. OSError. A `Path` for each of hundreds of files would cost more than the files."""
        file = os.open(f"{self._root}/{path}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(file, _MAX_BYTES)
        finally:
            os.close(file)


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
    """Return KFD's topology: a node for each device that the driver makes of a GPU, the GPU itself or each partition.

    The location of a node is the GPU's PCI bus, device and function. With several nodes of a GPU some kernels number them in
    the four highest bits, others in those of the function (Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c), so that the
    function counts only where several GPUs have one slot. A container may not read the nodes of GPUs that it may not open: then
    it only sees how many there are.

    `addresses` are those of the GPUs that the driver has. DriverError as for `Sysfs`.
    """
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
