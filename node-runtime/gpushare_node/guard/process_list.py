"""The processes of a GPU as values, and whether the report can be true; `vendors/nvidia/process_lists` reads it.

Drivers R530 to R535 before 535.154.05 return scrambled lists if the record is read at its old size. One row that no correct
driver could have written therefore invalidates every row of that GPU for the cycle. A usage that is merely odd, or missing,
does not affect other rows: only the usage of its own process is unknown. Owns the rows and their plausibility; does not know
containers.
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct

PID_MAX = 1 << 22
"""The largest pid of a 64-bit Linux: `PID_MAX_LIMIT`."""

MAX_ROWS = 940
"""The driver lists at most 950 pids and drops the others silently; a list of this length may be cut."""

SMALLEST_USE_BYTES = 1 << 20
"""A CUDA context takes hundreds of MiB. A usage below this, other than 0, may be a pid or a flag: it counts as unknown."""

MEMORY_UNKNOWN = (1 << 64) - 1
"""NVML's value for unknown memory of a process; pynvml turns it into None."""

SUM_PERCENT = 105
"""The largest plausible sum over a device's processes: the lists are read one after another while memory changes owner."""


class Kind(Enum):
    """The NVML list from which a row comes. An MPS client is in the compute list as well."""

    COMPUTE = "compute"
    GRAPHICS = "graphics"
    MPS = "mps"


_MPS = Kind.MPS
"""Looked up once: Python 3.11 takes five times as long to look up an enum member as to compare it."""


class ProcessEntry(NamedTuple):
    """One row of one list. `gpu_instance` is None if NVML returns none (0xFFFFFFFF)."""

    pid: int
    used_bytes: int | None
    gpu_instance: int | None = None
    kind: Kind = Kind.COMPUTE


class Mps(Enum):
    """Whether clients of this GPU go through an MPS server, and whether we can reach the program that controls it."""

    OFF = "off"
    REACHABLE = "reachable"
    UNREACHABLE = "unreachable"


class MigInstance(Struct):
    """A MIG instance: a separate device for tenants."""

    uuid: str
    total_bytes: int | None


class Device(Struct):
    """One GPU as read in one cycle.

    `rows` is None if they could not be read; `instances`, by GPU instance id, is None without MIG. `used_bytes` is the total
    allocation that the device reports, without the driver's reserve, after its rows were read, `used_before_bytes` the same
    before; None if unknown. `is_pending`: no answer has come since the last cycle, and none is overdue: there is no news of it.
    """

    uuid: str
    total_bytes: int | None
    rows: tuple[ProcessEntry, ...] | None
    used_bytes: int | None = None
    used_before_bytes: int | None = None
    instances: Mapping[int, MigInstance] | None = None
    mps: Mps = Mps.OFF
    pid_max: int = PID_MAX
    is_pending: bool = False

    def places(self) -> tuple[str, ...]:
        """Return the devices that can be allocated to tenants: the GPU, or its MIG instances."""
        return (self.uuid,) if self.instances is None else tuple(instance.uuid for instance in self.instances.values())

    def place_of(self, row: ProcessEntry) -> str | None:
        """Return the device to which this row belongs; None if it names a GPU instance that does not exist here."""
        if self.instances is None:
            return self.uuid
        instance = None if row.gpu_instance is None else self.instances.get(row.gpu_instance)
        return None if instance is None else instance.uuid


class RejectReason(Enum):
    """Why the guard takes no step on a GPU in this cycle."""

    UNREAD = "the process lists could not be read"
    TOTAL_UNKNOWN = "the memory of the device is not known"
    TOO_MANY = "the list is so long that the driver may have truncated it"
    BAD_PID = "an invalid pid"
    ABOVE_TOTAL = "a process that uses more than the device has"
    ABOVE_USED = "a process that uses more than the device says is in use"
    SUM_ABOVE_TOTAL = "processes that use more than the device has, taken together"
    CONFLICTING = "one process twice in one list, with different values"
    BAD_INSTANCE = "a GPU instance that the GPU does not have"


Uses = Mapping[int, int | None]
"""pid → bytes of one device, each process once; None: unknown."""


class ProcessUsage(Struct):
    """The plausible rows of a GPU: how much of each device each process uses, and which pids are MPS clients.

    For the pids in `partial` the usage is a lower bound: one list has a value and another does not. `is_cut`: the driver may
    have left rows out, so that every sum is a lower bound.
    """

    uses: Mapping[str, Uses]
    clients: frozenset[int]
    partial: frozenset[int] = frozenset()
    is_cut: bool = False


def validate(device: Device) -> ProcessUsage | RejectReason:
    """Return every process once for each device, or why the whole GPU cannot be trusted now."""
    if device.rows is None:
        return RejectReason.UNREAD
    placed = _by_place(device, device.rows)
    if placed is None:
        return RejectReason.BAD_INSTANCE
    uses = {}
    partial: set[int] = set()
    for place, (rows, total_bytes) in placed.items():
        merged = RejectReason.TOTAL_UNKNOWN if total_bytes is None else _merge(rows, total_bytes, device, partial)
        if isinstance(merged, RejectReason):
            return merged
        uses[place] = merged
    clients = frozenset([row.pid for row in device.rows if row.kind is _MPS])
    return ProcessUsage(uses=uses, clients=clients, partial=frozenset(partial), is_cut=len(device.rows) >= MAX_ROWS)


def _most_bytes(total_bytes: int, device: Device) -> int:
    """Return the most that one process can use: the larger of the used bytes before and after, because memory changes owner."""
    if device.used_bytes is None or device.used_before_bytes is None:
        return total_bytes
    return min(total_bytes, max(device.used_bytes, device.used_before_bytes))


def _by_place(device: Device, rows: tuple[ProcessEntry, ...]) -> Mapping[str, tuple[Sequence[ProcessEntry], int | None]] | None:
    """Return the rows of each device with its size; None if a row belongs to no device."""
    if device.instances is None:
        strays = [row for row in rows if row.gpu_instance is not None]
        return None if strays else {device.uuid: (rows, device.total_bytes)}
    placed: dict[int | None, list[ProcessEntry]] = {number: [] for number in device.instances}
    for row in rows:
        if row.gpu_instance not in placed:
            return None
        placed[row.gpu_instance].append(row)
    return {instance.uuid: (placed[number], instance.total_bytes) for number, instance in device.instances.items()}


def _merge(rows: Sequence[ProcessEntry], total_bytes: int, device: Device, partial: set[int]) -> Uses | RejectReason:
    """Return one device's processes, each once: a process in several lists counts with its largest value, not with the sum."""
    pid_max, most_bytes = device.pid_max, _most_bytes(total_bytes, device)
    plain = _merge_plain(rows, total_bytes, most_bytes, pid_max)
    if plain is not None:
        return plain
    merged: dict[int, int | None] = {}
    graphics: dict[int, int | None] = {}
    mps: dict[int, int | None] = {}
    for pid, listed, _, kind in rows:
        if not 2 < pid <= pid_max:
            return RejectReason.BAD_PID
        used = None if listed == MEMORY_UNKNOWN else listed
        if used is not None:
            if not 0 <= used <= most_bytes:
                return RejectReason.ABOVE_USED if 0 <= used <= total_bytes else RejectReason.ABOVE_TOTAL
            if 0 < used < SMALLEST_USE_BYTES:
                used = None
        uses = merged if kind is Kind.COMPUTE else graphics if kind is Kind.GRAPHICS else mps
        if uses.setdefault(pid, used) != used:
            return RejectReason.CONFLICTING
    for others in (graphics, mps):
        for pid, used in others.items():
            known = merged.setdefault(pid, used)
            if known != used:
                if known is None or used is None:
                    partial.add(pid)
                merged[pid] = max(known or 0, used or 0)
    if sum(filter(None, merged.values())) * 100 > total_bytes * SUM_PERCENT:
        return RejectReason.SUM_ABOVE_TOTAL
    return merged


def _merge_plain(rows: Sequence[ProcessEntry], total_bytes: int, most_bytes: int, pid_max: int) -> Uses | None:
    """Return the processes of a simple list: every value is known and plausible, and lists agree. None: check each row.

    Nearly every list is simple, and this takes a tenth of the time: it runs no Python code for each row.
    """
    if not rows:
        return {}
    pids, uses, _, _ = zip(*rows, strict=True)
    if None in uses or min(pids) <= 2 or max(pids) > pid_max or min(uses) < 0 or max(uses) > most_bytes:
        return None
    merged = dict(zip(pids, uses, strict=True))
    if len(merged) < len(pids) and len(set(zip(pids, uses, strict=True))) > len(merged):
        return None
    is_odd = min(filter(None, uses), default=SMALLEST_USE_BYTES) < SMALLEST_USE_BYTES
    return None if is_odd or sum(merged.values()) * 100 > total_bytes * SUM_PERCENT else merged
