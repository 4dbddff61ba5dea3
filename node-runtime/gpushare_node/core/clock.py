"""Clock: monotonic time, and a sleep that a stop signal interrupts. Wall time can jump, and is used for dates only."""

import threading
import time
from typing import Protocol


def wall_seconds() -> float:
    """Return seconds since 1970, to compare with dates that kubelet and people write. It may jump: time nothing with it."""
    return time.time()


def timestamp() -> str:
    """Return the wall time as the Kubernetes API writes it: `2026-11-23T05:30:00Z`."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


class Stopped(Exception):  # noqa: N818 - not an error: the pod is being stopped
    """The program received a stop signal; raised at its next sleep, so that every step is finished first."""


class Clock(Protocol):
    """The time source of every loop."""

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait. Raises Stopped if the program received a stop signal."""
        ...


class SystemClock:
    """The clock of the system."""

    def __init__(self) -> None:
        self._stop = threading.Event()

    def now(self) -> float:
        """Return monotonic seconds."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait. Raises Stopped if the program received a stop signal."""
        if self._stop.wait(max(0.0, seconds)):
            raise Stopped

    def stop(self) -> None:
        """End the program at its next sleep. Safe in a signal handler."""
        self._stop.set()
