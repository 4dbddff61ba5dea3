"""A workload: PodRequest, LeftOut, Workload. Plain values; knows neither pools nor cards."""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from itertools import accumulate
from typing import TypeVar

from gpushare.core.diagnostics import HintedError
from gpushare_node.contract.struct import Struct

_Key = TypeVar("_Key", bound=Hashable)

MAX_PODS = 200_000
"""The largest workload."""


class PodRequest(Struct):
    """What one pod asks for. Exactly one of `memory_bytes`, `milli`, `gpus` and `resource` is set.

    `memory_bytes` is memory of one GPU; `milli` are thousandths of one GPU, its memory and compute alike; `gpus` are whole
    GPUs; `resource` is an extended resource by its name, of which it requests `count`, and one container `per_container` at
    most (None: all of it). `pool` is the only pool that may serve it (its nodeSelector), `cards` the only cards, if any are
    named. `arrival` and `duration` are seconds from the workload's beginning; `duration` None: the pod stays. `line` is where
    the file has it, counted from 1.
    """

    namespace: str
    name: str
    memory_bytes: int | None = None
    milli: int | None = None
    gpus: int | None = None
    resource: str | None = None
    count: int = 1
    per_container: int | None = None
    pool: str = ""
    cards: tuple[str, ...] = ()
    arrival: int = 0
    duration: int | None = None
    line: int = 0


class LeftOut(Struct):
    """A row or object that is not simulated, and why. `column` is 0 if the whole row is meant."""

    line: int
    column: int
    reason: str


class Workload(Struct):
    """The pods in the order of the file: each row or object is either one of them or left out.

    `assumed` says in words what the file does not say and was assumed, `unused` are columns that have no meaning here.
    """

    source: str
    pods: tuple[PodRequest, ...]
    left_out: tuple[LeftOut, ...] = ()
    assumed: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


class WorkloadError(HintedError):
    """Nothing of a file can be used."""


def most_at_once(pods: Iterable[PodRequest], key: Callable[[PodRequest], _Key]) -> dict[_Key, int]:
    """Return for each key how many pods with it there are at once, at most and at least one, as if none waited."""
    changes: dict[_Key, Counter[int]] = {}
    for pod in pods:
        each = changes.setdefault(key(pod), Counter())
        each[pod.arrival] += 1
        if pod.duration is not None:
            each[pod.arrival + pod.duration] -= 1
    return {one: max(1, *accumulate(each[time] for time in sorted(each))) for one, each in changes.items()}
