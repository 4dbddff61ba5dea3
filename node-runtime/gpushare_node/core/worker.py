"""Worker: a thread of its own for calls that may never come back. Knows nothing of NVML or /proc.

A call into the driver, or a look at a file whose server does not answer, can hang where no signal reaches it. The other threads
run meanwhile, so the call is made here and awaited elsewhere, for so long and no longer. The thread is a daemon: a hung one
does not keep the program from ending.
"""

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

from gpushare_node.core.clock import Clock

T = TypeVar("T")


class Future(Generic[T]):
    """The answer to a job, once it is there. One that comes after nobody waits any more goes nowhere."""

    value: T
    """Only once the promise is kept."""

    def __init__(self) -> None:
        # A bare lock: an Event costs several times as much, and a cycle makes several of these.
        self._outstanding = threading.Lock()
        self._outstanding.acquire()

    def keep(self, value: T) -> None:
        """For the worker."""
        self.value = value
        self._outstanding.release()

    def wait(self, within_seconds: float = 0.0) -> bool:
        """Whether it is, or becomes so within the time."""
        if not self._outstanding.acquire(timeout=within_seconds):
            return False
        self._outstanding.release()
        return True


class Worker:
    """One thread that does one job at a time."""

    def __init__(self, name: str, clock: Clock) -> None:
        self._clock = clock
        self._busy_since: float | None = None
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Whether it is at a job."""
        return self._busy_since is not None

    def busy_seconds(self) -> float:
        """How long it has been at its job; 0 when it has none."""
        since = self._busy_since
        return 0.0 if since is None else max(0.0, self._clock.now() - since)

    def start(self, job: Callable[[], T]) -> Future[T] | None:
        """Give it a job, which must not raise. None if it is still at the last one: nothing is ever queued behind that."""
        if self._busy_since is not None:
            return None
        future: Future[T] = Future()

        def run() -> None:
            value = job()
            # First: whoever has the answer may give the next job at once.
            self._busy_since = None
            future.keep(value)

        self._busy_since = self._clock.now()
        self._jobs.put(run)
        return future

    def stop(self) -> None:
        """Have the thread end after its job."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (run := self._jobs.get()) is not None:
            run()
            del run
