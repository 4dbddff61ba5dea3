"""Calls: every NVML call that a session has made, with its time."""

import re
import statistics
from collections import defaultdict

CHANGES = re.compile(r"nvml(?:Device|GpuInstance|ComputeInstance|System)(?:Set|Create|Destroy|Reset|Clear|Modify)")
"""The names of calls that change a GPU. (`nvmlEventSetCreate` makes a queue of the caller's own.)"""


class Calls:
    """What a session is observed by."""

    def __init__(self) -> None:
        self._seconds: dict[str, list[float]] = defaultdict(list)

    def observe(self, call: str, seconds: float, _code: int | None) -> None:
        self._seconds[call].append(seconds)

    def forget(self) -> None:
        self._seconds.clear()

    def changes(self) -> list[str]:
        """The calls among them that change a GPU."""
        return [call for call in self._seconds if CHANGES.match(call)]

    def table(self) -> str:
        """For people: how often each was made, and how long it took."""
        rows = [
            f"{call}: {len(taken)} × p50 {percentile(taken, 50):.3f} ms, p99 {percentile(taken, 99):.3f} ms"
            for call, taken in sorted(self._seconds.items())
        ]
        return "\n".join(rows)


def percentile(seconds: list[float], percent: int) -> float:
    """In milliseconds."""
    if len(seconds) == 1:
        return seconds[0] * 1000
    return statistics.quantiles(seconds, n=100, method="inclusive")[percent - 1] * 1000
