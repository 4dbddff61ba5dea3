"""Holders: who holds the memory that the driver lists for a process that has ended, or that has no GPU open. Reads /proc only.

A process that forks (a data loader's workers) and ends, or closes its files, leaves its memory to the processes that still have
the device open. Only containers to which the device was allocated come into
question: one such container holds it, several are doubtful.
"""

from collections.abc import Collection, Iterable, Mapping

from gpushare_node.adapters.procs.processes import GpuUse, Processes
from gpushare_node.core.structs import Struct, field
from gpushare_node.enforce.identities import Identities
from gpushare_node.guard.identity import ContainerId, Process, ProcessKind
from gpushare_node.guard.inputs import Grant
from gpushare_node.guard.process_list import Device

_PATIENCE_SECONDS = 2
"""How long the driver may still list a process that is ending, before anybody is searched for."""


class Holders(Struct, frozen=False):
    """The processes without a GPU of their own that are listed, and since when."""

    processes: Processes
    identities: Identities
    _since: dict[int, float] = field(default_factory=dict)

    def find(
        self, devices: Iterable[Device], known: Mapping[int, Process], grants: Mapping[ContainerId, Grant],
        suspects: Collection[int], now: float,
    ) -> tuple[dict[int, tuple[Process, ...]], dict[int, tuple[ContainerId, ...]]]:
        """Return the holders of the memory of each such pid, and the containers that may hold it where that is not certain.

        `suspects`: the pids of offenders, of which it is looked at whether they have a GPU open.
        """
        places = {row.pid: device.places() for device in devices for row in device.rows or () if row.used_bytes != 0}
        absent = {pid for pid in places if self._has_no_gpu(pid, known.get(pid), suspects)}
        self._since = {pid: self._since.get(pid, now) for pid in absent}
        due = [pid for pid, since in self._since.items() if now - since >= _PATIENCE_SECONDS or pid in known]
        if not due:
            return {}, {}
        open_in = self._who_has_a_gpu(grants)
        found: dict[int, tuple[Process, ...]] = {}
        doubtful: dict[int, tuple[ContainerId, ...]] = {}
        for pid in due:
            candidates = [one for one in open_in if not grants[one].devices.isdisjoint(places[pid])]
            own = known[pid].container if pid in known else None
            if own is not None:
                # Whose process it is, is known: it is never charged to another container.
                candidates = [own] if own in open_in else []
            if len(candidates) == 1:
                found[pid] = open_in[candidates[0]]
            else:
                doubtful[pid] = tuple(candidates)
        return found, doubtful

    def _has_no_gpu(self, pid: int, process: Process | None, suspects: Collection[int]) -> bool:
        """Whether the driver cannot mean this process: none lives with this pid, or it is a tenant's without a GPU."""
        if process is None:
            return True
        return process.kind is ProcessKind.TENANT and pid in suspects and self.processes.uses_gpu(pid) is GpuUse.NO

    def _who_has_a_gpu(self, grants: Mapping[ContainerId, Grant]) -> dict[ContainerId, tuple[Process, ...]]:
        """Return the processes of each container with a device that have a GPU open."""
        found: dict[ContainerId, tuple[Process, ...]] = {}
        for seen in self.processes.in_pods():
            process = self.identities.identify(seen)
            container = process.container
            if process.kind is not ProcessKind.TENANT or container is None or container not in grants:
                continue
            if grants[container].devices and self.processes.uses_gpu(seen.pid) is GpuUse.YES:
                found[container] = (*found.get(container, ()), process)
        return found
