"""Measured use from Prometheus: of the metrics of the node runtimes, or if it has none of them, of NVIDIA's dcgm-exporter."""

from collections import Counter
from collections.abc import Callable, Iterator

from gpushare.core.wording import join_first, pluralize
from gpushare.render.monitoring import showback
from gpushare.resolved.plan import Plan
from gpushare.study.advice import dcgm_history
from gpushare.study.advice.history import History
from gpushare.study.advice.sampled_series import HOUR, Collected, Labels, Window
from gpushare.study.measured import scraped_labels
from gpushare.study.measured.prometheus import Prometheus, PrometheusError, Series

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
    window = Window(prometheus=prometheus, start=start, end=end, tell=tell)
    own = showback.of_cluster(cluster)
    interval = window.interval(showback.series(showback.RUNTIMES, *own))
    clusters: set[str] = set()
    for _, last in window.days():
        named = f"group by (cluster) (last_over_time({showback.USED}[1d]))"
        renamed = showback.renamed(cluster, [showback.USED])
        clusters |= scraped_labels.clusters(prometheus, last - 1, named=named, renamed=renamed)
        scraped_labels.refuse_several(clusters, cluster)
    if not clusters:
        return dcgm_history.read(window, plan, cluster)
    scraped_labels.refuse_unknown(clusters, cluster)
    return _Reading(window, plan, cluster).history(interval or 60)


class _Reading:
    """What Prometheus says of the containers that the runtimes measure."""

    def __init__(self, window: Window, plan: Plan, cluster: str) -> None:
        self._window, self._plan, self._own = window, plan, showback.of_cluster(cluster)
        self._cluster = cluster
        self._pools = {pool.name for pool in plan.pools}
        self._others: Counter[str] = Counter()

    def history(self, interval: int) -> History:
        window = self._window
        used = showback.series(showback.USED, *self._own)
        step = window.step(used, _KEYS, interval)
        collected = Collected()
        others: set[Labels] = set()
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

    def _caps(self) -> tuple[dict[Labels, int], set[Labels]]:
        """Return the smallest cap of each container, and the containers whose cap changed."""
        caps: dict[Labels, int] = {}
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


def _labels(one: Series) -> Labels:
    values = {name: scraped_labels.value(one, name, "use of GPU memory") for name in _KEYS.split(", ")}
    device = values.pop("gpu")
    return Labels(**values, device=device)


def _assumed(step: int, interval: int, changed: int) -> Iterator[str]:
    yield f"each step of {step} s has the most of all samples in it; between two samples, {interval} s apart, nothing is known"
    if changed:
        yield f"{pluralize(changed, 'container')} had several caps in the window: the smallest counts"
