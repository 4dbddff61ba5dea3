"""What no layout can beat: how many GPUs a workload needs if GPUs could be cut freely, or not at all."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable

from gpushare.core.units import MIB
from gpushare.study.simulation.outcome import Bounds
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import PodRequest


def of(supply: Supply, pods: Iterable[PodRequest]) -> Bounds | None:
    """Return the bounds at the time of the most pods that ask for memory, parts or whole GPUs; None if they cannot be compared.

    Memory is a part of a GPU if all pools have one card, whose memory is known; who asks for more than a GPU has is left out.
    Pods run from their arrival on, as if none waited.
    """
    compared = [pod for pod in pods if pod.resource is None]
    memory = _gpu_bytes(supply)
    if not compared or (memory is None and any(pod.memory_bytes is not None for pod in compared)):
        return None
    whole = 1000 * (memory or 1)
    fitting = [pod for pod in compared if pod.memory_bytes is None or pod.memory_bytes * 1000 <= whole]
    asked = Counter(_size(pod, memory or 1) for pod in _most(fitting))
    parts = {size: number for size, number in asked.items() if size < whole}
    gpus = sum(number * size // whole for size, number in asked.items() if size >= whole)
    return Bounds(
        lower=gpus - -sum(size * number for size, number in parts.items()) // whole,
        free_sizes=gpus + _best_fit(parts, whole),
        whole=gpus + sum(parts.values()),
    )


def _gpu_bytes(supply: Supply) -> int | None:
    """Return the memory of a GPU if all pools have the same card, and it is known."""
    found = {(pool.card, pool.gpu_mib) for pool in supply.pools}
    memory = next(iter(found))[1] if len(found) == 1 else None
    return memory * MIB if memory else None


def _size(pod: PodRequest, memory: int) -> int:
    """Return what a pod asks for, in thousandths of the bytes of a GPU."""
    if pod.memory_bytes is not None:
        return pod.memory_bytes * 1000
    return memory * (pod.milli if pod.milli is not None else 1000 * (pod.gpus or 0))


def _most(pods: list[PodRequest]) -> list[PodRequest]:
    """Return the pods of the first time at which they are the most."""
    changes = Counter(pod.arrival for pod in pods)
    changes.subtract(pod.arrival + pod.duration for pod in pods if pod.duration is not None)
    number, most, at = 0, 0, 0
    for time in sorted(changes):
        number += changes[time]
        if number > most:
            most, at = number, time
    return [pod for pod in pods if pod.arrival <= at and (pod.duration is None or at < pod.arrival + pod.duration)]


def _best_fit(parts: dict[int, int], whole: int) -> int:
    """Return how many GPUs best fit needs that takes the largest first: each on the GPU that it leaves least of."""
    gpus = 0
    left: Counter[int] = Counter()
    sizes: list[int] = []
    for size, number in sorted(parts.items(), reverse=True):
        for _ in range(number):
            place = bisect_left(sizes, size)
            gpus += place == len(sizes)
            rest = sizes[place] if place < len(sizes) else whole
            if place < len(sizes):
                left[rest] -= 1
                if not left[rest]:
                    del sizes[place]
            left[rest - size] += 1
            if left[rest - size] == 1:
                insort(sizes, rest - size)
    return gpus
