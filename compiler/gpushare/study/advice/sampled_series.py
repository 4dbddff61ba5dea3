"""Queries of a window in Prometheus, day by day, whose steps keep the maximum; and the step that the window permits.

A range query evaluates at instants, and would lose what lies between two: each step has the maximum of all samples in it. A
point is at the beginning of its step, so that the use holds until the next.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from gpushare.core.units import show_duration
from gpushare.core.wording import pluralize
from gpushare.study.advice.history import ContainerUse
from gpushare.study.measured.prometheus import Prometheus, PrometheusError, Series
from gpushare_node.contract.struct import Struct

HOUR, DAY = 3600, 86400
_STEPS = (60, 120, 300, 600, 900, 1800, 3600)
"""In seconds; each divides a day. At the first, a day has 1440 of the 11,000 points that Prometheus answers for one series."""
_MOST_POINTS, _MOST_IN_A_DAY = 1_500_000, 400_000
"""So that the history fits into 300 MB, and one answer into what the client reads. Prometheus itself has 50 million samples."""
_MOST_BYTES = 1 << 44


class Labels(Struct):
    """Whose use a series is."""

    namespace: str
    pod: str
    container: str
    pool: str
    device: str
    node: str


class Window:
    """A window of whole hours in Prometheus. `tell` is called with what is read next."""

    def __init__(self, prometheus: Prometheus, start: int, end: int, tell: Callable[[str], None]) -> None:
        self.prometheus, self.start, self.end, self._tell = prometheus, start, end, tell

    def days(self) -> Iterator[tuple[int, int]]:
        """Yield the start and the end of each day, the last of which may be shorter."""
        for first in range(self.start, self.end, DAY):
            yield first, min(first + DAY, self.end)

    def step(self, used: str, keys: str, interval: int) -> int:
        """Return the length of a step: at least the interval of the samples, and so long that the answers are not too large.

        `used` is the selector of the series, `keys` the labels by which they are one.
        """
        days = []
        for first, last in self.days():
            # A series that two Prometheus have counts once.
            query = f"sum(max by ({keys}) (count_over_time({used}[{last - first}s])))"
            days.append(sum(value or 0 for one in self.prometheus.at(query, last - 1) for _, value in one.points) * interval)
        for step in _STEPS:
            if step >= interval and sum(days) <= _MOST_POINTS * step and max(days) <= _MOST_IN_A_DAY * step:
                return step
        if interval > _STEPS[-1]:
            raise PrometheusError(f"Prometheus has a sample of each container only every {show_duration(interval)}")
        hours = round(sum(days) / HOUR)
        raise PrometheusError(f"the window has {hours:,} container-hours, more than can be read", "choose a shorter window")

    def interval(self, series: str) -> int:
        """Return how many seconds lie between two samples of a series, by the hour with the most of them; 0: there is none."""
        counted = f"max(max_over_time(count_over_time({series}[1h])[1d:1h]))"
        counts = [value or 0 for _, last in self.days() for value in self._values(counted, last - 1)]
        most = max(counts, default=0)
        return max(round(HOUR / most), 1) if most else 0

    def maxima(self, used: str, keys: str, step: int) -> Iterator[tuple[Series, Iterator[tuple[int, int | None]]]]:
        """Yield each series of each day, and its points: the beginning of a step, and the most in it."""
        query = f"max by ({keys}) (max_over_time({used}[{step}s]))"
        for first, last in self.days():
            hours = (self.end - self.start) // HOUR
            self._tell(f"hours {(first - self.start) // HOUR} to {(last - self.start) // HOUR} of {hours}")
            for one in self.prometheus.between(query, first + step, last, step):
                yield one, _points(one, step)

    def missing(self, counted: str, label: str) -> Mapping[str, float]:
        """Return by label the part of the window without samples; `counted` is how many of an hour's 12 steps have one."""
        found: dict[str, int] = {}
        for first, last in self.days():
            for one in self.prometheus.between(counted, first + HOUR - 1, last - 1, HOUR):
                steps = sum(min(int(value or 0), 12) for _, value in one.points)
                found[one.labels.get(label, "")] = found.get(one.labels.get(label, ""), 0) + steps
        hours = (self.end - self.start) // HOUR
        return {name: max(1 - steps / (12 * hours), 0.0) for name, steps in found.items()}

    def _values(self, query: str, time: int) -> Iterator[float | None]:
        return (value for one in self.prometheus.at(query, time) for _, value in one.points)


class Collected:
    """The use by container and device. `unmeasured` counts the points that were not numbers."""

    def __init__(self) -> None:
        self._points: dict[Labels, list[list[tuple[int, int]]]] = {}
        self.unmeasured = 0

    def add(self, labels: Labels, points: Iterable[tuple[int, int | None]], factor: int = 1) -> None:
        """Add the points of a series, in bytes after multiplication. PrometheusError for what is no use of memory."""
        known = []
        for at, value in points:
            if value is None:
                self.unmeasured += 1
            elif 0 <= value * factor <= _MOST_BYTES:
                known.append((at, value * factor))
            else:
                hint = "use is not negative, and in the unit of the metric; --usage may name a server that is not Prometheus"
                raise PrometheusError(f"Prometheus answers a use of {value * factor:,} bytes, which no GPU has", hint)
        if known:
            self._points.setdefault(labels, []).append(known)

    def uses(self, caps: Mapping[Labels, int]) -> tuple[ContainerUse, ...]:
        """Return the use of each container on each of its devices, by name. Frees what it has collected."""
        found = []
        for labels in sorted(self._points, key=lambda labels: tuple(vars(labels).values())):
            lists = self._points[labels]
            self._points[labels] = []
            # Series that differ only in labels that are left out, as after a restart of the exporter, overlap.
            joined = dict(sorted(chain.from_iterable(lists)))
            found.append(
                ContainerUse(
                    namespace=labels.namespace,
                    pod=labels.pod,
                    container=labels.container,
                    pool=labels.pool,
                    device=labels.device,
                    points=tuple(joined.items()),
                    cap_bytes=caps.get(labels),
                )
            )
        return tuple(found)

    def times(self) -> Iterator[tuple[Labels, set[int]]]:
        """Yield of each container and device the times at which it was measured."""
        for labels, lists in self._points.items():
            yield labels, {at for at, _ in chain.from_iterable(lists)}

    def drop(self, labels: Labels) -> None:
        """Forget a container."""
        del self._points[labels]

    @property
    def left_out(self) -> Iterator[str]:
        """The reasons for which samples are not used."""
        if self.unmeasured:
            yield f"{pluralize(self.unmeasured, 'sample')}: not a number"


def _points(one: Series, step: int) -> Iterator[tuple[int, int | None]]:
    return ((int(at) - step, None if value is None else int(value)) for at, value in one.points)
