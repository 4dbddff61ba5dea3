"""Threads beside the caller's: Worker for calls that may never return, WorkQueue for those that may take long. Know no call.

A call into the driver, or a read of a file whose server does not answer, can hang where no signal interrupts it. The other
threads continue to run, so the worker makes the call and another thread waits for it with a timeout. The thread is a daemon:
a hung call does not keep the program from ending.
"""

import logging
import queue
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from gpushare_node.core.clock import Clock, Stopped

T = TypeVar("T")


class Future(Generic[T]):
    """The result of a job, once it has one. A result that comes after the last waiter gave up is discarded."""

    value: T
    """Unset until the job has returned."""

    def __init__(self) -> None:
        # A bare lock: an Event costs several times as much, and a cycle makes several of these.
        self._outstanding = threading.Lock()
        self._outstanding.acquire()

    def set_result(self, value: T) -> None:
        """Set the result. Only the worker calls it."""
        self.value = value
        self._outstanding.release()

    def wait(self, within_seconds: float = 0.0) -> bool:
        """Whether the result is set, or is set within the time."""
        if not self._outstanding.acquire(timeout=within_seconds):
            return False
        self._outstanding.release()
        return True


class Worker:
    """One thread that runs one job at a time."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._busy_since: float | None = None
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether it runs a job."""
        return self._busy_since is not None

    def busy_seconds(self) -> float:
        """Return how long it has been running its job; 0 if it has none."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock.now() - since)

    def start(self, job: Callable[[], T]) -> Future[T] | None:
        """Start a job, which must not raise. None if the last one still runs: no job is ever queued behind another."""
        if self._busy_since is not None:
            return None
        future: Future[T] = Future()
        self._busy_since = self._clock.now()
        self._jobs.put((job, future))
        return future

    def stop(self) -> None:
        """End the thread after its job."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (given := self._jobs.get()) is not None:
            job, future = given
            value = job()
            # First: the caller that gets the result may start the next job at once.
            self._busy_since = None
            future.set_result(value)
            # A waiting thread must keep no answer alive.
            del given, job, future, value


_LOG = logging.getLogger(__name__)
_MAX_WAITING = 64


class WorkQueue:
    """Calls that may take long (the API server, the MPS control program), one after another on a thread of their own.

    The cycle never waits for them. A full queue drops the new job and returns False: a caller that still needs it sends it
    again. The thread starts with the first job. Only one thread may call `send`.
    """

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
