"""What a simulation found: Outcome and its parts. Plain values.

A pod is *placed* if it ran at any time, *pending* if it never did; one that waited and then ran is placed.
"""

from collections.abc import Mapping

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


class Placement(Struct):
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


class Outcome(Struct):
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
