"""VirtualTime: time that passes only while every thread that takes part waits: a slow machine makes nothing last longer."""

import heapq
import itertools
import threading

_GRAIN_SECONDS = 0.005
"""Who is due so soon after another goes on together with it."""


class VirtualTime:
    """One time of many threads, each of which waits by `sleep` alone; a request to a real server takes none of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0.0
        self._running = 0
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, threading.Event]] = []

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._now

    def sleep(self, seconds: float) -> None:
        """Wait, as a thread that takes part."""
        woken = threading.Event()
        with self._lock:
            heapq.heappush(self._waiting, (self._now + max(0.0, seconds), next(self._order), woken))
            self._running -= 1
            self._pass()
        woken.wait()

    def run(self, threads: list[threading.Thread]) -> None:
        """Start the threads as those that take part, and wait for their end. Each calls `leave` as its last act."""
        with self._lock:
            self._running += len(threads)
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def leave(self) -> None:
        """The calling thread takes part no longer."""
        with self._lock:
            self._running -= 1
            self._pass()

    def _pass(self) -> None:
        if self._running or not self._waiting:
            return
        self._now = self._waiting[0][0] + _GRAIN_SECONDS
        while self._waiting and self._waiting[0][0] <= self._now:
            self._running += 1
            heapq.heappop(self._waiting)[2].set()
