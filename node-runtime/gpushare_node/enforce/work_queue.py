"""WorkQueue: calls that may take long (the API server, the MPS control program), one after another on a separate thread.

The cycle never waits for them. A full queue drops the new job and returns False: a caller that still needs it sends it again.
"""

import logging
import queue
import threading
from collections.abc import Callable

from gpushare_node.core.clock import Stopped

_LOG = logging.getLogger(__name__)
_MAX_WAITING = 64


class WorkQueue:
    """The queue, and its thread, which starts with the first job. Only one thread may call `send`."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue(_MAX_WAITING)
        self._thread: threading.Thread | None = None

    def send(self, job: Callable[[], None]) -> bool:
        """Queue the job; return False if too many wait already."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="work-queue", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(job)
        except queue.Full:
            return False
        return True

    def _work(self) -> None:
        while True:
            job = self._queue.get()
            try:
                job()
            except Stopped:
                # The program ends: it waits for no job.
                return
            except Exception:
                # A job handles the errors it expects. Any other must not end the thread, which the following jobs need.
                _LOG.exception("a job failed")
