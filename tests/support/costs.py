"""Costs: CPU time of two jobs in turn, as a ratio: a slow machine slows both alike. `make bench` has the seconds."""

import time
from collections.abc import Callable
from statistics import median

ROUNDS = 3


def ratio(large: Callable[[], object], small: Callable[[], object]) -> float:
    """How many times as much the one costs as the other: the median of some rounds, in each of which both take about as long.

    Of a short job some run falls into a moment in which the machine is faster than it is for the whole of a long one.
    """
    times = max(1, round(_seconds(large) / max(_seconds(small), _LEAST)))
    return median(_seconds(large) / max(_seconds(small, times) / times, _LEAST) for _ in range(ROUNDS))


_LEAST = 1e-6


def _seconds(job: Callable[[], object], times: int = 1) -> float:
    began = time.process_time()
    for _ in range(times):
        job()
    return time.process_time() - began


def grows_in_line(job: Callable[[int], Callable[[], object]], count: int) -> bool:
    """Whether four times as many cost far less than sixteen times as much. `job` prepares what is measured."""
    return ratio(job(count), job(count // 4)) < 9
