"""Clock: monotonic time, and a sleep that a signal to stop ends. Wall time jumps, and is for dates alone."""

import threading
import time
from typing import Protocol


def wall_seconds() -> float:
    """Seconds since 1970, to compare with dates that kubelet and people write. It may jump: nothing else is timed by it."""
    return time.time()


class Stopped(Exception):  # noqa: N818 - no error: the pod is asked to end
    """The program has been asked to end; raised where it would wait next, so that every step is finished first."""


class Clock(Protocol):
    """Time as loops see it."""

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait. Stopped, when the program has been asked to end."""
        ...


class SystemClock:
    """The real one."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> float:
        """Monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait. Stopped, when the program has been asked to end."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def stop(self) -> None:
        """Ask the program to end. Safe in a signal handler."""
        self._stop.set()
