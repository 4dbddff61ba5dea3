"""Scans: reads of other processes' files that those processes can delay forever, made on worker threads with a timeout.

Owns how long such a scan may take and how many may hang at once. The owner of a FUSE or NFS mount decides when `stat` on a file
there returns, so the thread that enforces caps makes no such call.
"""

from collections.abc import Callable

from gpushare_node.adapters.procs.processes import GpuUse
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.worker import Worker

SCAN_SECONDS = 0.1
"""A scan of a process with a thousand open files and ten thousand mappings takes a twentieth of that."""

_MAX_HANGING = 4
"""How many scans may hang at once. While all do, every result is UNREADABLE, which protects no process from a signal."""


class Scans:
    """Scans with a time limit. Only one thread may call `ask`."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def ask(self, look: Callable[[], GpuUse]) -> GpuUse:
        """Return the result of `look`, or UNREADABLE if there is none in time. `look` must not raise."""
        worker = self._free()
        future = None if worker is None else worker.start(look)
        if future is None or not future.wait(SCAN_SECONDS):
            return GpuUse.UNREADABLE
        return future.value

    def _free(self) -> Worker | None:
        for worker in self._workers:
            if not worker.is_busy:
                return worker
        if len(self._workers) == _MAX_HANGING:
            return None
        self._workers.append(Worker("scan", SystemClock()))
        return self._workers[-1]
