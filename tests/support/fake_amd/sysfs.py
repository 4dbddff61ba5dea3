"""FakeSysfs: the files of sysfs that AMD's driver makes, in a folder: GPUs, their modes, KFD's topology and processes.

A change of the modes makes all devices again, as the driver does: a KFD node and a render device for each, the first under the
GPU's PCI device, all others under platform devices. A memory mode of which the compute mode is not legal changes that too
(Linux, drivers/gpu/drm/amd/amdgpu/aqua_vanjaram.c).
"""

import errno
import os
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

GPUS = "module/amdgpu/drivers/pci:amdgpu"
NODES = "class/kfd/kfd/topology/nodes"
PROCESSES = "class/kfd/kfd/proc"
_MIB = 1 << 20
_MAX_PARTS = 8
_PARTS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}


def hide_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """KFD refuses to show the nodes of GPUs, as to a container that may not open these."""
    plain = os.open

    def refuse(path: Any, *arguments: Any, **named: Any) -> int:
        file = Path(path) if NODES in str(path) else None
        if file is not None and file.is_file() and (file.name != "gpu_id" or file.read_bytes().strip() != b"0"):
            raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))
        return plain(path, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)


class RefusedError(Exception):
    """The driver refuses a mode. The text is what AMD SMI says."""


@dataclass(frozen=True)
class Card:
    """A model. `dies` 0: it cannot be divided; `legal` are the memory modes of each compute mode."""

    device: str
    memory_mib: int
    dies: int = 0
    legal: dict[str, tuple[str, ...]] = field(default_factory=dict)


CARDS = {
    "mi210": Card("0x740f", 65520),
    "mi300x": Card(
        "0x74a1", 196592, 8, {"SPX": ("NPS1",), "DPX": ("NPS1", "NPS2"), "QPX": ("NPS1", "NPS4"), "CPX": ("NPS1", "NPS4")}
    ),
    "mi308x": Card("0x74a2", 196592, 4, {"SPX": ("NPS1",), "DPX": ("NPS1",), "CPX": ("NPS1",)}),
    "mi355x": Card("0x75a3", 294896, 8, {"SPX": ("NPS1",), "DPX": ("NPS1", "NPS2"), "QPX": ("NPS1",), "CPX": ("NPS1",)}),
    "mi300a": Card("0x74a0", 131056, 6, {"SPX": ("NPS1",), "TPX": ("NPS1",), "CPX": ("NPS1",)}),
}


@dataclass
class FakeGpu:
    """A GPU as the driver has it."""

    card: Card
    unique_id: str
    compute: str = "SPX"
    memory: str = "NPS1"
    refuses: str = ""
    """What AMD SMI says to every change of this GPU; empty if it obeys."""

    @property
    def parts(self) -> int:
        return (_PARTS.get(self.compute) or self.card.dies) if self.card.dies else 1


class FakeSysfs:
    """The tree under `root`. Its GPUs are in the order of their PCI addresses."""

    def __init__(self, root: Path, *cards: str) -> None:
        self.root = root
        self.gpus = [FakeGpu(CARDS[card], f"{0xA0B0C0D000000000 + number:016x}") for number, card in enumerate(cards)]
        self.processes: dict[int, dict[tuple[int, int], int]] = {}
        self.number_shift = 28
        """Where KFD's locations have the numbers of a GPU's nodes: 0 in other kernels."""
        self.load()

    def address(self, gpu: int) -> str:
        return f"0000:{0x05 + 0x10 * gpu:02x}:00.0"

    def gpu_folder(self, gpu: int) -> Path:
        return self.root / GPUS / self.address(gpu)

    def node_folder(self, gpu: int, part: int = 0) -> Path:
        """Two nodes are processors. A change of one GPU renumbers no node of another, as it does with the driver."""
        return self.root / NODES / str(2 + _MAX_PARTS * gpu + part)

    def _part_folder(self, gpu: int, part: int) -> Path:
        """The platform device of a partition but the first."""
        return self.root / f"devices/platform/amdgpu_xcp_{(_MAX_PARTS - 1) * gpu + part - 1}"

    def gpu_id(self, gpu: int, part: int = 0) -> int:
        return 1000 + 100 * gpu + part

    # The driver.

    def load(self) -> None:
        """The driver starts, with the modes that it has: all its files are new."""
        self.unload()
        (self.root / GPUS).mkdir(parents=True)
        (self.root / "devices/platform").mkdir(parents=True, exist_ok=True)
        for node in range(2):
            self._node(self.root / NODES / str(node), 0, {"cpu_cores_count": 96, "simd_count": 0, "location_id": 0})
        for number, gpu in enumerate(self.gpus):
            self._make(number, gpu)
        (self.root / PROCESSES).mkdir(parents=True)
        self._list_processes()

    def unload(self) -> None:
        """The driver is unloaded: nothing of it is there."""
        for folder in ("module/amdgpu", "class/kfd", "devices/platform"):
            shutil.rmtree(self.root / folder, ignore_errors=True)

    def reboot(self) -> None:
        """The driver starts with whole GPUs, and no process is left."""
        self.processes = {}
        for gpu in self.gpus:
            gpu.compute, gpu.memory = "SPX", "NPS1"
        self.load()

    def set_memory(self, gpu: int, memory: str) -> None:
        """As AMD SMI does, with the reload of the driver: it changes the compute mode if that is not legal any more."""
        one = self.gpus[gpu]
        self._refuse(one, memory in {mode for modes in one.card.legal.values() for mode in modes})
        one.memory = memory
        if memory not in one.card.legal[one.compute]:
            one.compute = "DPX" if memory == "NPS2" else "SPX" if memory == "NPS1" else "CPX"
        self._remake(gpu)

    def set_compute(self, gpu: int, compute: str) -> None:
        one = self.gpus[gpu]
        self._refuse(one, one.memory in one.card.legal.get(compute, ()))
        one.compute = compute
        self._remake(gpu)

    def _remake(self, gpu: int) -> None:
        """All that there is of one GPU is new."""
        nodes = [self.node_folder(gpu, part) for part in range(_MAX_PARTS)]
        parts = [self._part_folder(gpu, part) for part in range(1, _MAX_PARTS)]
        for folder in (self.gpu_folder(gpu), *nodes, *parts):
            shutil.rmtree(folder, ignore_errors=True)
        self._make(gpu, self.gpus[gpu])

    def _refuse(self, gpu: FakeGpu, is_legal: bool) -> None:
        if any(self.processes):
            raise RefusedError("AMDSMI_STATUS_BUSY")
        if gpu.refuses or not is_legal:
            raise RefusedError(gpu.refuses or "AMDSMI_STATUS_SETTING_UNAVAILABLE")

    # Who uses the GPUs.

    def start(self, pid: int, *uses: tuple[int, int, int]) -> None:
        """A process that has KFD open, with so many MiB of some devices: (GPU, part, MiB)."""
        self.processes[pid] = {(gpu, part): mib * _MIB for gpu, part, mib in uses}
        self._list_processes()

    def end(self, pid: int) -> None:
        self.processes.pop(pid, None)
        self._list_processes()

    def _list_processes(self) -> None:
        shutil.rmtree(self.root / PROCESSES, ignore_errors=True)
        (self.root / PROCESSES).mkdir(parents=True)
        for pid, uses in self.processes.items():
            (self.root / PROCESSES / str(pid)).mkdir()
            for number, gpu in enumerate(self.gpus):
                for part in range(gpu.parts):
                    used = uses.get((number, part), 0)
                    (self.root / PROCESSES / str(pid) / f"vram_{self.gpu_id(number, part)}").write_text(f"{used}\n")

    # Files.

    def _make(self, number: int, gpu: FakeGpu) -> None:
        folder, card = self.gpu_folder(number), gpu.card
        _write(folder, vendor="0x1002", device=card.device, unique_id=gpu.unique_id, numa_node="0")
        _write(folder, mem_info_vram_total=str(card.memory_mib * _MIB))
        if card.dies:
            memories = dict.fromkeys(mode for modes in card.legal.values() for mode in modes)
            _write(folder, current_compute_partition=gpu.compute, current_memory_partition=gpu.memory)
            _write(folder, available_compute_partition=", ".join(card.legal), available_memory_partition=", ".join(memories))
        for part in range(gpu.parts):
            minor = _MAX_PARTS * number + part
            at = folder if part == 0 else self._part_folder(number, part)
            for name in (f"card{1 + minor}", f"renderD{128 + minor}"):
                (at / "drm" / name).mkdir(parents=True)
            bus = int(self.address(number)[5:7], 16)
            properties = {
                "cpu_cores_count": 0,
                "simd_count": 304 * 4 // gpu.parts,
                "vendor_id": 0x1002,
                "device_id": int(card.device, 16),
                "location_id": bus << 8 | (part << self.number_shift if gpu.parts > 1 else 0),
                "domain": 0,
                "drm_render_minor": 128 + minor,
                "unique_id": int(gpu.unique_id, 16) + part,
            }
            # The first partition has 16 MiB less (MI308X, ROCm k8s-device-plugin's test data).
            memory = card.memory_mib * _MIB // gpu.parts - (16 * _MIB if part == 0 and gpu.parts > 1 else 0)
            self._node(self.node_folder(number, part), self.gpu_id(number, part), properties, memory)

    def _node(self, folder: Path, gpu_id: int, properties: dict[str, int], memory: int = 0) -> None:
        _write(folder, gpu_id=str(gpu_id), properties="\n".join(f"{name} {value}" for name, value in properties.items()))
        if memory:
            _write(
                folder / "mem_banks/0", properties=f"heap_type 1\nsize_in_bytes {memory}\nflags 0\nwidth 8192\nmem_clk_max 1300"
            )


def _write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        file = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(file, f"{text}\n".encode())
        os.close(file)
