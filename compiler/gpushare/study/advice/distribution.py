"""How much memory containers used of a pool in a part of the history, by namespace, and what the history cannot tell.

A container counts by the most that it used; on each of its devices, which have caps of their own. Its use at `start` is that of
its last sample before, if that is not further away than a gap.
"""

import math
from bisect import bisect_left
from collections.abc import Iterable, Iterator

from gpushare.core.wording import join_first, pluralize
from gpushare.study.advice import intervals
from gpushare.study.advice.advised import Distribution
from gpushare.study.advice.history import ContainerUse, History
from gpushare_node.contract.struct import Struct

_NEAR_CAP_PERCENT = 95
_DAY, _WEEK = 86400, 7 * 86400
_MOST_GAPS = 0.02


class Coverage(Struct):
    """What is known of a pool in a part of the history, in seconds and containers.

    `measured` is the time of all containers in which their use is known, `gaps` that between samples of one container in which
    it is not. `missing` is the part of the window (0 to 1) in which the source has no sample of the pool; None: not known.
    `near_cap` containers used at least 95 % of their cap.
    """

    seconds: int
    containers: int
    namespaces: int
    measured: int
    gaps: int
    missing: float | None
    near_cap: int

    @property
    def gap_part(self) -> float:
        """The part of the containers' time, from 0 to 1, in which their use is not known."""
        return self.gaps / (self.measured + self.gaps) if self.gaps else 0.0


def of(history: History, pool: str, window: tuple[int, int]) -> tuple[Distribution, ...]:
    """Return the distribution of each namespace in the window, by name; its end is not included."""
    maxima: dict[str, list[tuple[int, ContainerUse]]] = {}
    for use in uses(history, pool):
        most = peak(use, window, history.gap_seconds)
        if most is not None:
            maxima.setdefault(use.namespace, []).append((most, use))
    return tuple(_of_namespace(name, maxima[name]) for name in sorted(maxima))


def uses(history: History, pool: str) -> Iterator[ContainerUse]:
    """Yield the containers of a pool."""
    return (use for use in history.containers if use.pool == pool)


def peak(use: ContainerUse, window: tuple[int, int], gap_seconds: int) -> int | None:
    """Return the most that a container used in the window, in bytes; None if it was not measured in it."""
    first, last = _range(use, window)
    if first and use.points[first - 1][0] + gap_seconds > window[0]:
        first -= 1
    return max((used for _, used in use.points[first:last]), default=None)


def coverage(history: History, pool: str, window: tuple[int, int]) -> Coverage:
    """Return what is known of a pool in the window."""
    measured = gaps = near = 0
    namespaces, number = set(), 0
    for use in uses(history, pool):
        most = peak(use, window, history.gap_seconds)
        if most is None:
            continue
        number += 1
        namespaces.add(use.namespace)
        near += is_near_cap(use, most)
        known, unknown = _known(use, window, history)
        measured += known
        gaps += unknown
    return Coverage(
        seconds=window[1] - window[0],
        containers=number,
        namespaces=len(namespaces),
        measured=measured,
        gaps=gaps,
        missing=history.missing.get(pool),
        near_cap=near,
    )


def limits(found: Coverage, distributions: Iterable[Distribution]) -> Iterator[str]:
    """Yield in words what a history with this coverage, and these distributions of it, cannot tell."""
    if not found.containers:
        return
    if found.seconds < _WEEK:
        yield f"learned from {_length(found.seconds)}: use that recurs by the week is not in it"
    listed = list(distributions)
    for name in ("p50", "p95", "p99"):
        few = [one.namespace for one in listed if math.isinf(getattr(one, name).high)]
        if few:
            yield f"{name} has no upper bound in {pluralize(len(few), 'namespace')} with few containers: {join_first(few)}"
    if found.gap_part > _MOST_GAPS:
        yield f"{found.gap_part:.0%} of the containers' time is not measured: use in it may have been higher"
    if found.missing:
        yield f"in {found.missing:.1%} of the time no sample of the pool exists"
    if found.near_cap:
        near = pluralize(found.near_cap, "container")
        yield f"{near} used at least {_NEAR_CAP_PERCENT} % of the cap: what they would use without it is not known"
    yield "the intervals hold for containers that do not depend on each other; replicas of one workload do"


def is_near_cap(use: ContainerUse, most: int) -> bool:
    """Whether the most that a container used is so near its cap that it is a lower bound of what it would use."""
    return use.cap_bytes is not None and 100 * most >= _NEAR_CAP_PERCENT * use.cap_bytes


def _of_namespace(name: str, maxima: Iterable[tuple[int, ContainerUse]]) -> Distribution:
    listed = list(maxima)
    ordered = sorted(most for most, _ in listed)
    return Distribution(
        namespace=name,
        containers=len(ordered),
        p50=intervals.quantile(ordered, 0.5),
        p95=intervals.quantile(ordered, 0.95),
        p99=intervals.quantile(ordered, 0.99),
        most=ordered[-1],
        near_cap=sum(is_near_cap(use, most) for most, use in listed),
    )


def _range(use: ContainerUse, window: tuple[int, int]) -> tuple[int, int]:
    """Return the indexes of the points from the window's start up to its end."""
    return bisect_left(use.points, (window[0],)), bisect_left(use.points, (window[1],))


def _known(use: ContainerUse, window: tuple[int, int], history: History) -> tuple[int, int]:
    """Return for how many seconds of the window the use is known, and for how many between two samples it is not."""
    first, last = _range(use, window)
    times = [at for at, _ in use.points[max(first - 1, 0) : last + 1]]
    if not times:
        return 0, 0
    known = unknown = 0
    for at, following in zip(times, [*times[1:], times[-1] + history.step_seconds], strict=True):
        seconds = max(min(following, window[1]) - max(at, window[0]), 0)
        if following - at > history.gap_seconds:
            unknown += seconds
        else:
            known += seconds
    return known, unknown


def _length(seconds: int) -> str:
    return pluralize(seconds // _DAY, "day") if seconds >= _DAY else pluralize(max(seconds // 3600, 1), "hour")
