"""WorkQueue: calls that may take long (the API server, the MPS control program), one after another on a thread of their own.

The cycle never waits for them. A full queue drops the new errand, and says so: what is still needed is asked for again.
"""

import logging
import queue
import threading
from collections.abc import Callable

_LOG = logging.getLogger(__name__)
_MOST_WAITING = 64


class WorkQueue:
    """The queue, and the thread that begins with the first errand. To be sent by one thread."""

    def __init__(self) -> None:
        self._queue: queue.Queue[Callable[[], None]] = queue.Queue(_MOST_WAITING)
        self._thread: threading.Thread | None = None

    def send(self, job: Callable[[], None]) -> bool:
        """Do this soon; False when too many wait already."""
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
            except Exception:
                # An errand handles what it expects. Whatever else it meets must not end the thread of all that follow.
                _LOG.exception("an errand failed")
