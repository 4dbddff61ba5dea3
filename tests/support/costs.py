"""Costs: CPU time of two jobs in turn, as a ratio: a slow machine slows both alike. `make bench` has the seconds.

A moment in which the machine is slow for one of the two spoils a round and not the next, so one round of some decides: what
costs too much does so in all.
"""

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROUNDS = 5
SPAN = 16
"""So many times as many, of which the cost is compared: of what grows with the square, 256 times as much."""
LINEAR = 48
"""Three times what grows in line costs, and less than a fifth of what grows with the square."""


def costs_below(limit: float, large: Callable[[], object], small: Callable[[], object]) -> bool:
    """Whether the one costs less than `limit` times as much as the other, in a round in which both take about as long.

    Of a short job some run falls into a moment in which the machine is faster than it is for the whole of a long one.
    """
    times = max(1, round(limit / 2))
    return any(_seconds(large) < limit * _seconds(small, times) / times for _ in range(ROUNDS))


def grows_in_line(job: Callable[[int], Callable[[], object]], count: int) -> bool:
    """Whether the cost grows with the number and not with its square. `job` prepares what is measured."""
    return costs_below(LINEAR, job(count), job(count // SPAN))


def _seconds(job: Callable[[], object], times: int = 1) -> float:
    with _without_garbage_collection():
        began = time.process_time()
        for _ in range(times):
            job()
        return time.process_time() - began


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """A collection of all that this process holds costs more than most jobs, and falls on one of the two."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
