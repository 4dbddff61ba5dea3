"""Scans: looks into other processes that the process looked at can delay without end, made elsewhere and awaited briefly.

Owns how long such a look may take and how many may hang at once. Whoever has a file open on a FUSE or NFS mount decides when
`stat` on it answers, so no such call is made on the thread that holds tenants to their caps.
"""

from collections.abc import Callable

from gpushare_node.adapters.procs.processes import GpuUse
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.worker import Worker

SCAN_SECONDS = 0.1
"""A process with a thousand open files and ten thousand mappings takes a twentieth of that."""

_MOST_HANGING = 4
"""How many looks may hang at once. While all do, nothing is known of anybody: that acquits nobody."""


class Scans:
    """Looks with a time limit. Only for one thread to ask."""

    def __init__(self) -> None:
        self._workers: list[Worker] = []

    def ask(self, look: Callable[[], GpuUse]) -> GpuUse:
        """What the look says, or UNREADABLE if it does not say so in time. It must not raise."""
        worker = self._free()
        future = None if worker is None else worker.start(look)
        if future is None or not future.wait(SCAN_SECONDS):
            return GpuUse.UNREADABLE
        return future.value

    def _free(self) -> Worker | None:
        for worker in self._workers:
            if not worker.is_busy:
                return worker
        if len(self._workers) == _MOST_HANGING:
            return None
        self._workers.append(Worker("scan", SystemClock()))
        return self._workers[-1]
