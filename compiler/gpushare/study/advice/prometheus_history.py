"""Measured use from Prometheus: of the metrics of the node runtimes, or if it has none of them, of NVIDIA's dcgm-exporter.

A range query evaluates at instants, and would lose what lies between two: each step has the maximum of all samples in it. A
point is at the beginning of its step, so that the use holds until the next.

dcgm-exporter measures devices, and names with each a pod that has it. Of a shared device it names one of its pods, or none:
these devices are left out. It knows no pool: a pool has the GPUs of its card, if no other pool of the intent has that card.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from gpushare.core.units import MIB, show_duration
from gpushare.core.wording import join_first, pluralize
from gpushare.render.monitoring import showback
from gpushare.resolved.plan import Plan, PoolPlan
from gpushare.study.advice.history import ContainerUse, History
from gpushare.study.measured.prometheus import (
    Prometheus,
    PrometheusError,
    Series,
    label_value,
    named_clusters,
    refuse_several,
    refuse_unknown,
)
from gpushare_node.contract.struct import Struct

HOUR, DAY = 3600, 86400
_STEPS = (60, 120, 300, 600, 900, 1800, 3600)
"""In seconds; each divides a day. At the first, a day has 1440 of the 11,000 points that Prometheus answers for one series."""
_MOST_POINTS, _MOST_IN_A_DAY = 1_500_000, 400_000
"""So that the history fits into 300 MB, and one answer into what the client reads. Prometheus itself has 50 million samples."""
_MOST_BYTES = 1 << 44


class SeriesLabels(Struct):
    """Whose use a series is."""

    namespace: str
    pod: str
    container: str
    pool: str
    device: str
    node: str


class PrometheusWindow:
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
        self._points: dict[SeriesLabels, list[list[tuple[int, int]]]] = {}
        self.unmeasured = 0

    def add(self, labels: SeriesLabels, points: Iterable[tuple[int, int | None]], factor: int = 1) -> None:
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

    def uses(self, caps: Mapping[SeriesLabels, int]) -> tuple[ContainerUse, ...]:
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

    def times(self) -> Iterator[tuple[SeriesLabels, set[int]]]:
        """Yield of each container and device the times at which it was measured."""
        for labels, lists in self._points.items():
            yield labels, {at for at, _ in chain.from_iterable(lists)}

    def drop(self, labels: SeriesLabels) -> None:
        """Forget a container."""
        del self._points[labels]

    @property
    def left_out(self) -> Iterator[str]:
        """The reasons for which samples are not used."""
        if self.unmeasured:
            yield f"{pluralize(self.unmeasured, 'sample')}: not a number"


def _points(one: Series, step: int) -> Iterator[tuple[int, int | None]]:
    return ((int(at) - step, None if value is None else int(value)) for at, value in one.points)


METRIC = "DCGM_FI_DEV_FB_USED"
_TENANT = ("namespace", "pod", "container")
_DCGM_KEYS = ", ".join(
    ("UUID", "GPU_I_ID", "GPU_I_PROFILE", "modelName", *_TENANT, *(f"exported_{label}" for label in _TENANT))
)
_OWN_POD = re.compile(r"(?:.+-)?dcgm-exporter-[a-z0-9]{5}\Z")
_AT_ONCE = 2
"""In so many steps a device may have two pods: one that ends, and one that begins."""
_HINT = "its window or its retention may be too short, or it scrapes another cluster: docs/monitoring.md"
_SHARED = "shares its devices: dcgm-exporter names one of the pods of a shared device, or none"


def _read_dcgm(window: PrometheusWindow, plan: Plan, cluster: str) -> History:
    """Return the history of pools whose devices are not shared. PrometheusError if there is none."""
    own = showback.of_cluster(cluster)
    used = showback.series(METRIC, *own)
    clusters = {
        one.labels.get("cluster", "")
        for _, last in window.days()
        for one in window.prometheus.at(f"group by (cluster) (last_over_time({METRIC}[1d]))", last - 1)
    }
    if not clusters:
        raise PrometheusError(f"Prometheus has no sample of {showback.USED} or of {METRIC} in this window", _HINT)
    refuse_several(clusters, cluster)
    refuse_unknown(clusters, cluster)
    pools = {pool.name: reason for pool in plan.pools if (reason := _why_not(pool, plan))}
    if len(pools) == len(plan.pools):
        reasons = "; ".join(f"pool {name} {reason}" for name, reason in sorted(pools.items()))
        raise PrometheusError(f"Prometheus has no sample of {showback.USED}, and {METRIC} does not do: {reasons}", _HINT)
    return _DcgmReading(window, plan, pools).history(used)


def _why_not(pool: PoolPlan, plan: Plan) -> str:
    """Return why the exporter does not tell the use of a pool's containers; empty if it does."""
    if any(device.replicas > 1 for device in pool.devices):
        return _SHARED
    others = [other.name for other in plan.pools if other.card.id == pool.card.id and other.name != pool.name]
    return f"has the same card as {join_first(others)}: dcgm-exporter names no pool" if others else ""


class _DcgmReading:
    """What the exporter says of devices and the pods that have them."""

    def __init__(self, window: PrometheusWindow, plan: Plan, unusable: dict[str, str]) -> None:
        self._window, self._unusable = window, unusable
        self._pools = {
            _model(name): pool.name
            for pool in plan.pools
            for name in (pool.card.name, pool.card.product, *pool.card.name_aliases)
        }

    def history(self, used: str) -> History:
        window = self._window
        interval = window.interval(used)
        step = window.step(used, _DCGM_KEYS, interval or 60)
        answers = [(one, list(points)) for one, points in window.maxima(used, _DCGM_KEYS, step)]
        is_renamed = any(one.labels.get("exported_pod") for one, _ in answers)
        collected = Collected()
        refused: dict[SeriesLabels, str] = {}
        for one, points in answers:
            labels = self._labels(one, is_renamed=is_renamed)
            if labels is None:
                continue
            reason = self._unusable.get(labels.pool, "") if labels.pool else "has a card that the intent does not have"
            if reason:
                refused[labels] = f"its pool {labels.pool} {reason}" if labels.pool else reason
            else:
                collected.add(labels, points, MIB)
        for labels in _shared(collected):
            collected.drop(labels)
            refused[labels] = "has a device that several pods have"
        counted = Counter(refused.values())
        of_model = f"count_over_time(group by (modelName) ({used})[1h:5m])"
        missing = {
            self._pools[_model(name)]: part
            for name, part in window.missing(of_model, "modelName").items()
            if _model(name) in self._pools
        }
        return History(
            source="dcgm-exporter's metrics in Prometheus",
            start=window.start,
            end=window.end,
            step_seconds=step,
            containers=collected.uses({}),
            left_out=(
                *(f"{pluralize(number, 'container')}: {reason}" for reason, number in counted.most_common()),
                *collected.left_out,
            ),
            warnings=tuple(window.prometheus.warnings),
            assumed=tuple(_dcgm_assumed(step, interval)),
            missing={pool: missing.get(pool, 1.0) for pool in sorted({*self._pools.values()} - self._unusable.keys())},
        )

    def _labels(self, one: Series, *, is_renamed: bool) -> SeriesLabels | None:
        """Return whose use the series is; None: no pod has the device, and the labels are those of the exporter's own pod."""
        prefix = "exported_" if is_renamed else ""
        namespace, pod, container = (one.labels.get(f"{prefix}{label}", "") for label in _TENANT)
        if not pod or (not is_renamed and _OWN_POD.match(pod)):
            return None
        instance = one.labels.get("GPU_I_ID", "")
        device = label_value(one, "UUID", METRIC)
        return SeriesLabels(
            namespace=namespace,
            pod=pod,
            container=container,
            pool=self._pools.get(_model(one.labels.get("modelName", "")), ""),
            device=f"{device}/{instance}" if instance else device,
            node="",
        )


def _shared(collected: Collected) -> list[SeriesLabels]:
    """Return the containers whose device other containers have at the same time."""
    times: dict[str, Counter[int]] = {}
    listed = list(collected.times())
    for labels, measured in listed:
        times.setdefault(labels.device, Counter()).update(measured)
    shared = {device for device, counts in times.items() if sum(number > 1 for number in counts.values()) > _AT_ONCE}
    return [labels for labels, _ in listed if labels.device in shared]


def _model(name: str) -> str:
    """Return a card's name as NVML and as GFD write it, without their difference."""
    return re.sub(r"[ -]+", "-", name.strip().lower())


def _dcgm_assumed(step: int, interval: int) -> Iterator[str]:
    yield "use is all memory in use of the device that a container has, as dcgm-exporter measures it"
    yield "a GPU is of the pool that has its card"
    yield "no container had a cap: dcgm-exporter knows none"
    yield f"each step of {step} s has the most of all samples in it; between two samples, {interval} s apart, nothing is known"


_KEYS = "node, pool, namespace, pod, container, gpu"


def read(
    prometheus: Prometheus,
    plan: Plan,
    period: tuple[int, int],
    *,
    cluster: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> History:
    """Return the history of the pools of a plan in the whole hours of a period. PrometheusError.

    `cluster` is the label of one of several clusters. `tell` is called with what is read next.
    """
    start, end = (-(-period[0] // HOUR) * HOUR, period[1] // HOUR * HOUR)
    if end <= start:
        raise PrometheusError("the window is shorter than an hour")
    window = PrometheusWindow(prometheus=prometheus, start=start, end=end, tell=tell)
    own = showback.of_cluster(cluster)
    interval = window.interval(showback.series(showback.RUNTIMES, *own))
    clusters: set[str] = set()
    for _, last in window.days():
        named = f"group by (cluster) (last_over_time({showback.USED}[1d]))"
        renamed = showback.renamed(cluster, [showback.USED])
        clusters |= named_clusters(prometheus, last - 1, named=named, renamed=renamed)
        refuse_several(clusters, cluster)
    if not clusters:
        return _read_dcgm(window, plan, cluster)
    refuse_unknown(clusters, cluster)
    return _Reading(window, plan, cluster).history(interval or 60)


class _Reading:
    """What Prometheus says of the containers that the runtimes measure."""

    def __init__(self, window: PrometheusWindow, plan: Plan, cluster: str) -> None:
        self._window, self._plan, self._own = window, plan, showback.of_cluster(cluster)
        self._cluster = cluster
        self._pools = {pool.name for pool in plan.pools}
        self._others: Counter[str] = Counter()

    def history(self, interval: int) -> History:
        window = self._window
        used = showback.series(showback.USED, *self._own)
        step = window.step(used, _KEYS, interval)
        collected = Collected()
        others: set[SeriesLabels] = set()
        for one, points in window.maxima(used, _KEYS, step):
            labels = _labels(one)
            if labels.pool in self._pools:
                collected.add(labels, points)
            else:
                others.add(labels)
        caps, have_changed = self._caps()
        missing = window.missing(showback.scraped(self._cluster)[showback.RUNTIMES], "pool")
        containers = collected.uses(caps)
        left_out = list(collected.left_out)
        if others:
            names = join_first(sorted({labels.pool for labels in others}))
            left_out.append(f"{pluralize(len(others), 'container')} of pools that the intent does not have: {names}")
        changed = sum(labels.pool in self._pools for labels in have_changed)
        return History(
            source="the node runtimes' metrics in Prometheus",
            start=window.start,
            end=window.end,
            step_seconds=step,
            containers=containers,
            left_out=tuple(left_out),
            warnings=(*window.prometheus.warnings, *self._unscraped()),
            assumed=tuple(_assumed(step, interval, changed)),
            missing={pool: missing.get(pool, 1.0) for pool in sorted(self._pools)},
        )

    def _caps(self) -> tuple[dict[SeriesLabels, int], set[SeriesLabels]]:
        """Return the smallest cap of each container, and the containers whose cap changed."""
        caps: dict[SeriesLabels, int] = {}
        changed = set()
        series = showback.series(showback.CAPS, *self._own)
        for first, last in self._window.days():
            for bound in ("min", "max"):
                query = f"{bound} by ({_KEYS}) ({bound}_over_time({series}[{last - first}s]))"
                for one in self._window.prometheus.at(query, last - 1):
                    labels, [(_, value)] = _labels(one), one.points
                    if not value or value < 0:
                        continue
                    if caps.setdefault(labels, int(value)) != int(value):
                        changed.add(labels)
                    caps[labels] = min(caps[labels], int(value))
        return caps, changed

    def _unscraped(self) -> Iterator[str]:
        """Yield the pools of which fewer nodes were scraped at once than the intent has."""
        nodes = Counter[str]()
        runtimes = showback.series(showback.RUNTIMES, *self._own)
        query = f"max_over_time(count by (pool) (group by (pool, node) ({runtimes}))[1d:5m])"
        for _, last in self._window.days():
            for one in self._window.prometheus.at(query, last - 1):
                pool, [(_, value)] = one.labels.get("pool", ""), one.points
                nodes[pool] = max(nodes[pool], int(value or 0))
        for plan in self._plan.pools:
            if plan.nodes is not None and nodes[plan.name] < plan.nodes:
                of_all = f"at most {nodes[plan.name]} of its {pluralize(plan.nodes, 'node')}"
                yield f"pool {plan.name}: {of_all} were scraped at once"


def _labels(one: Series) -> SeriesLabels:
    values = {name: label_value(one, name, "use of GPU memory") for name in _KEYS.split(", ")}
    device = values.pop("gpu")
    return SeriesLabels(**values, device=device)


def _assumed(step: int, interval: int, changed: int) -> Iterator[str]:
    yield f"each step of {step} s has the most of all samples in it; between two samples, {interval} s apart, nothing is known"
    if changed:
        yield f"{pluralize(changed, 'container')} had several caps in the window: the smallest counts"
