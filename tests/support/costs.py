"""Costs: CPU time of two jobs in turn, as a ratio: a slow machine slows both alike. `make bench` has the seconds."""

import time
from collections.abc import Callable

ROUNDS = 5


def ratio(large: Callable[[], object], small: Callable[[], object]) -> float:
    """How many times as much the one costs as the other: the best of some rounds, in turn."""
    best = [float("inf"), float("inf")]
    for _ in range(ROUNDS):
        for number, job in enumerate((large, small)):
            began = time.process_time()
            job()
            best[number] = min(best[number], time.process_time() - began)
    return best[0] / best[1]


def grows_in_line(job: Callable[[int], Callable[[], object]], count: int) -> bool:
    """Whether four times as many cost far less than sixteen times as much. `job` prepares what is measured."""
    return ratio(job(count), job(count // 4)) < 9
