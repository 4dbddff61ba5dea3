"""GpuPoller: queries all GPUs one after another on one thread; if a GPU hangs, it gives up on it and on that thread.

A thread for each GPU costs six times the CPU time for the same results: they wake one another at every call. So there is
one thread as long as no GPU hangs, and one more for each GPU that does.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

from gpushare_node.core.clock import Clock
from gpushare_node.core.worker import Future, Worker

T = TypeVar("T")


class _Sweep(Generic[T]):
    """One pass over some GPUs. It ends early if the poller leaves it: another pass has taken over the rest."""

    def __init__(self, ask: Callable[[str], T], uuids: Sequence[str]) -> None:
        self.found: dict[str, T] = {}
        self.steps = 0
        self.at = ""
        self._ask = ask
        self._uuids = uuids
        self._is_left = False
        self._lock = threading.Lock()

    def run(self) -> None:
        for uuid in self._uuids:
            with self._lock:
                if self._is_left:
                    return
                self.at = uuid
                self.steps += 1
            self.found[uuid] = self._ask(uuid)

    def leave(self, steps: int) -> bool:
        """Leave the pass if it has made no progress since, and return whether it was left."""
        with self._lock:
            self._is_left = self.steps == steps
            return self._is_left


class GpuPoller(Generic[T]):
    """Queries GPUs without hanging when one of them does. Only one thread may use it; `ask` must not raise."""

    def __init__(self, clock: Clock, *, deadline_seconds: float) -> None:
        self._clock = clock
        self._deadline_seconds = deadline_seconds
        self._workers: list[Worker] = []
        self._hung: dict[str, Worker] = {}

    def take(self, uuids: Iterable[str], ask: Callable[[str], T]) -> dict[str, T]:
        """Return the results that came in time.

        A GPU that hangs takes one to two deadlines, then all GPUs after it are queried at the same time: however many hang,
        this returns within four deadlines.
        """
        self._hung = {uuid: worker for uuid, worker in self._hung.items() if worker.is_busy}
        wanted = [uuid for uuid in uuids if uuid not in self._hung]
        found = self._await([self._start(ask, wanted)]) if wanted else {}
        rest = [uuid for uuid in wanted if uuid not in found and uuid not in self._hung]
        return found | self._await([self._start(ask, [uuid]) for uuid in rest])

    def hung_seconds(self) -> dict[str, float]:
        """Return for how long each hung GPU has not answered."""
        return {uuid: worker.busy_seconds() for uuid, worker in self._hung.items() if worker.is_busy}

    @property
    def is_busy(self) -> bool:
        """Whether some call has not returned."""
        return any(worker.is_busy for worker in self._workers)

    def stop(self) -> None:
        """End the threads."""
        for worker in self._workers:
            worker.stop()

    def _start(self, ask: Callable[[str], T], uuids: Sequence[str]) -> tuple[_Sweep[T], Worker, Future[None]]:
        sweep = _Sweep(ask, uuids)
        for worker in self._workers:
            future = worker.start(sweep.run)
            if future is not None:
                return sweep, worker, future
        self._workers.append(Worker("gpus", self._clock))
        return self._start(ask, uuids)

    def _await(self, sweeps: Iterable[tuple[_Sweep[T], Worker, Future[None]]]) -> dict[str, T]:
        found: dict[str, T] = {}
        for sweep, worker, future in sweeps:
            steps = sweep.steps
            while not future.wait(self._deadline_seconds):
                if sweep.leave(steps):
                    self._hung[sweep.at] = worker
                    break
                steps = sweep.steps
            found |= dict(sweep.found)
        return found
