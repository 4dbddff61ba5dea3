"""Holders: who holds the memory that the driver lists for a process that has ended, or that has no GPU open. Reads /proc only.

A process that forks (a data loader's workers) and ends, or closes its files, leaves its memory to the processes that still have
the device open. The invariant, for each row (a pid on one device) by itself:

- Memory of a pid that was identified while the row was listed is charged to that process's container, or to none. Once the pid
  is another container's process, and for as long as the driver goes on listing the row, it is charged to neither.
- Memory of a pid that never was is charged only if one container alone may hold it, and only to processes of it that have a GPU
  open and are not listed there themselves. A container may hold it if it may have a GPU open, and this device was allocated to
  it, or no device as far as is known: it is then charged with nothing, and nor is any other. Platform pods hold none.
- A zombie that still shows its cgroup was that container's process, or of none: its memory is charged to no other.
- A living process that cannot be read is neither ended nor without a GPU; one that is ending frees its own memory.

All other memory is doubtful: no container is charged with it, and a reason of the node says so.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache

from gpushare_node.adapters.procs.processes import GpuUse, Processes
from gpushare_node.contract.struct import Struct, field
from gpushare_node.enforce.identities import Identities
from gpushare_node.guard.inputs import ContainerId, Grant, Process, ProcessKind, Row
from gpushare_node.guard.process_list import Device

_PATIENCE_SECONDS = 2
"""How long the driver may still list a process that has ended, before its holder is searched for."""

_SEARCH_SECONDS = 1.0
"""How long the processes of all pods may be looked at in one cycle. Those that are left then may have a GPU open."""

_Open = Mapping[ContainerId, tuple[Process, ...]]
"""The processes that have a GPU open, of each container that may have one open: none if that is not readable, and none of a
container to which no device was allocated as far as is known."""


class Holders(Struct, frozen=False):
    """Whose each row is, and since when those without a GPU of their own are listed."""

    processes: Processes
    identities: Identities
    _owners: dict[Row, Process | None] = field(default_factory=dict)
    _since: dict[Row, float] = field(default_factory=dict)

    def find(
        self,
        devices: Iterable[Device],
        known: Mapping[int, Process],
        grants: Mapping[ContainerId, Grant],
        suspects: Collection[int],
        now: float,
    ) -> tuple[dict[Row, tuple[Process, ...]], dict[Row, tuple[ContainerId, ...]]]:
        """Return the holders of the memory of each such row, and the containers that may hold it where that is not certain.

        `suspects`: the pids of offenders, of which it is looked at whether they have a GPU open.
        """
        rows, absent, owners = _rows(devices), [], {}
        uses_gpu = cache(self.processes.uses_gpu)
        for row in rows:
            process = known.get(row[0])
            owner = owners[row] = _owner(self._owners.get(row), process)
            if process is None or process is not owner or (row[0] in suspects and _has_no_gpu(process, uses_gpu)):
                absent.append(row)
        self._owners = owners
        self._since = {row: self._since.get(row, now) for row in absent}
        due = [row for row, since in self._since.items() if now - since >= _PATIENCE_SECONDS or row[0] in known]
        if not due:
            return {}, {}
        may_hold = self._who_may_hold(grants, uses_gpu)
        found: dict[Row, tuple[Process, ...]] = {}
        doubtful: dict[Row, tuple[ContainerId, ...]] = {}
        for row in due:
            if row[0] not in known and self.processes.is_living(row[0]):
                continue
            candidates = self._candidates(row, known.get(row[0]), may_hold, grants)
            heirs = next(iter(candidates.values())) if len(candidates) == 1 else ()
            fresh = tuple(one for one in heirs if (one.pid, row[1]) not in rows)
            if fresh or (heirs and self._owners[row] is not None):
                found[row] = fresh or heirs
            else:
                doubtful[row] = tuple(candidates)
        return found, doubtful

    def _candidates(self, row: Row, process: Process | None, may_hold: _Open, grants: Mapping[ContainerId, Grant]) -> _Open:
        """Return the containers that may hold the memory of this row, with their processes that may."""
        owner = self._owners.get(row)
        if owner is None and (seen := self.processes.unreaped(row[0])) is not None:
            owner = self.identities.identify(seen)
        if owner is None:
            return {one: held for one, held in may_hold.items() if row[1] in (_devices(one, grants) or {row[1]})}
        if process is not None and process is not owner:
            return {one: () for one in (owner.container, process.container) if one is not None}
        return {one: held for one, held in may_hold.items() if one == owner.container and held}

    def _who_may_hold(self, grants: Mapping[ContainerId, Grant], uses_gpu: Callable[[int], GpuUse]) -> _Open:
        found: dict[ContainerId, tuple[Process, ...]] = {}
        deadline = time.monotonic() + _SEARCH_SECONDS
        for seen in self.processes.in_pods():
            process = self.identities.identify(seen)
            container = process.container
            if process.kind is ProcessKind.SYSTEM or container is None:
                continue
            use = uses_gpu(seen.pid) if time.monotonic() < deadline else GpuUse.UNREADABLE
            if use is not GpuUse.NO:
                is_tenant = process.kind is ProcessKind.TENANT and bool(_devices(container, grants))
                found[container] = found.get(container, ()) + ((process,) if is_tenant and use is GpuUse.YES else ())
        return found


def _has_no_gpu(process: Process, uses_gpu: Callable[[int], GpuUse]) -> bool:
    """Whether the driver cannot mean this process: it is a tenant's without a GPU."""
    return process.kind is ProcessKind.TENANT and uses_gpu(process.pid) is GpuUse.NO


def _devices(container: ContainerId, grants: Mapping[ContainerId, Grant]) -> frozenset[str]:
    """Return what was allocated to a container, as far as is known."""
    return grants[container].devices if container in grants else frozenset()


def _owner(former: Process | None, process: Process | None) -> Process | None:
    """Return the owner of a row as known now; the former owner once its pid is another container's process."""
    if process is former or process is None or former is None:
        return former or process
    return process if process.start_time == former.start_time or process.container == former.container else former


def _rows(devices: Iterable[Device]) -> set[Row]:
    """Return the rows that may have memory."""
    return {
        (row.pid, place)
        for device in devices
        for row in device.rows or ()
        if row.used_bytes != 0 and (place := device.place_of(row)) is not None
    }
