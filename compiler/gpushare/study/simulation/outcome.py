"""What a simulation found: Outcome and its parts, and Simulations, all intents of a call with theirs.

A pod is *placed* if it ran at any time, *pending* if it never did; one that waited and then ran is placed. `bounds_of` is what
no layout can beat: how many GPUs a workload needs if GPUs could be cut freely, or not at all.
"""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Mapping

from gpushare.core.units import MIB, total
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import PodRequest, Workload
from gpushare_node.contract.struct import Struct


class Point(Struct):
    """The state of a pool from `time` (seconds from the workload's beginning) until the next point.

    `shares` are shares in use, `asked_mib` the memory that their pods asked for, `granted_mib` the memory of these shares
    (None: not known), `nodes` and `gpus` those with at least one pod, `pending` the pods that wait for this pool.

    Who asks for a part of a GPU or for whole ones asks for that part of its memory, reserve included; who asks for a resource,
    for what it provides (0 if not known). A pod that several pools may serve waits for the first of them.
    """

    time: int
    shares: int
    asked_mib: int
    granted_mib: int | None
    nodes: int
    gpus: int
    pending: int


class PoolOutcome(Struct):
    """One pool. `nodes` are those that it has, or, if `is_open` (its number is not known), those that were needed.

    `pending` is reason → pods that never ran, `waited_seconds` the sum over placed pods of the time that they waited.
    `gpu_hours` are those of all its GPUs while the workload lasted, `used_gpu_hours` in proportion to the shares in use;
    both None if the workload has no end. `stranded_mib` is memory of GPUs in use that no pod asked for, at the `peak`: the
    first point with the most shares in use. `cost` is of `gpu_hours`, or per hour if `is_hourly` (the workload has no end).
    """

    name: str
    card: str
    nodes: int
    is_open: bool
    shares: int
    placed: int
    pending: Mapping[str, int]
    waited_seconds: int
    peak: Point
    points: tuple[Point, ...]
    gpu_hours: float | None
    used_gpu_hours: float | None
    stranded_mib: int | None
    cost: float | None
    is_hourly: bool


class PodPlacement(Struct):
    """What became of one pod of the workload, the `pod`th of it, counted from 0.

    It ran from `start` on, on a node of the pool, with these `devices` of it (positions in the supply's list, one for each
    share); or it never did for a `reason`, and is pending in the pool. `pool` empty: no pool can ever serve it.
    """

    pod: int
    pool: str
    resource: str
    node: int | None
    devices: tuple[int, ...]
    start: int | None
    reason: str


class Bounds(Struct):
    """What no layout can beat, in GPUs at the time of the most pods, for pods that ask for parts or memory of one card.

    `lower` is the sum of what the pods ask for, rounded up; `free_sizes` what best fit by decreasing size needs if every GPU
    could be cut freely; `whole` what it takes if every pod has whole GPUs.
    """

    lower: int
    free_sizes: int
    whole: int


class SimulationOutcome(Struct):
    """The outcome of one workload on one plan. `pools` by name; `unserved` is reason → pods that no pool can ever serve.

    `end` is the second at which the last pod ended; None if pods stay. `bounds` is None if the workload asks for nothing that
    can be compared. `assumed` says in words what was assumed.
    """

    pools: tuple[PoolOutcome, ...]
    unserved: Mapping[str, int]
    bounds: Bounds | None
    end: int | None
    currency: str
    cost: float | None
    assumed: tuple[str, ...]


class Simulated(Struct):
    """One intent. `file` is as the user names it, `name` the cluster's."""

    file: str
    name: str
    supply: Supply
    outcome: SimulationOutcome

    def gpus(self, pool: PoolOutcome) -> int:
        """Return the GPUs of a pool's nodes."""
        return pool.nodes * next(one.gpus_per_node for one in self.supply.pools if one.name == pool.name)

    @property
    def all_gpus(self) -> int:
        """The GPUs of all pools."""
        return sum(map(self.gpus, self.outcome.pools))

    @property
    def nodes(self) -> int:
        """The nodes of all pools."""
        return sum(pool.nodes for pool in self.outcome.pools)

    @property
    def placed(self) -> int:
        """The pods that ran."""
        return sum(pool.placed for pool in self.outcome.pools)

    @property
    def never_ran(self) -> int:
        """The pods that never ran."""
        pending = sum(sum(pool.pending.values()) for pool in self.outcome.pools)
        return pending + sum(self.outcome.unserved.values())

    @property
    def waited_seconds(self) -> int:
        """The time that pods which ran had waited, all together."""
        return sum(pool.waited_seconds for pool in self.outcome.pools)

    @property
    def mean_wait(self) -> int:
        """How many seconds a pod that ran had waited on average, rounded up."""
        return -(-self.waited_seconds // max(self.placed, 1))

    @property
    def stranded_mib(self) -> int | None:
        """The stranded memory of all pools, each at its peak; None if that of one is not known."""
        return total(pool.stranded_mib for pool in self.outcome.pools)

    @property
    def gpu_hours(self) -> float | None:
        """The GPU-hours of all pools; None if the workload has no end."""
        return total(pool.gpu_hours for pool in self.outcome.pools)


class Simulations(Struct):
    """The intents of one call, the first of them with which the others are compared. `scoring` is the scheduler's."""

    workload: Workload
    scoring: str
    intents: tuple[Simulated, ...]


def bounds_of(supply: Supply, pods: Iterable[PodRequest]) -> Bounds | None:
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
