"""Waiting for what another thread, process or node is about to do: long where a machine is slow, over as soon as it is so.

No test asserts how long something took: `make bench` measures that. PATIENCE only ends what would hang forever.
"""

import time
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 180.0
"""Seconds. A machine that needs more has hung."""

T = TypeVar("T")


def wait_for(condition: Callable[..., T], what: str = "it", seconds: float = PATIENCE) -> T:
    """Until it is true; its value. Fails when it never is."""
    # Called without arguments, and typed with any: a lambda that is made in a loop keeps the loop's variable as a default.
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what} never came true"
        time.sleep(0.005)
    return value
