"""What each namespace held and used of each pool in a period: from Prometheus' answers. Hours without samples are named.

Each day is queried by itself: a month of a large cluster exceeds the samples that Prometheus keeps in memory for one query. A
query ends a second before the day does, so that exactly its steps count: whether those at either end of a period count
depends on the version of Prometheus.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping

from gpushare.core.prices import Price
from gpushare.core.units import total
from gpushare.render.monitoring import showback
from gpushare.resolved import costs
from gpushare.resolved.plan import PoolPlan
from gpushare.study.measured.prometheus import (
    Prometheus,
    PrometheusError,
    Series,
    label_value,
    named_clusters,
    refuse_several,
    refuse_unknown,
)
from gpushare_node.contract.struct import NOTHING, Struct

HOUR, DAY = 3600, 86400
_STEPS = HOUR // showback.STEP_SECONDS
_NOT_EXPORTED = re.compile(r"[^a-zA-Z0-9_]")
_ROUNDING = 1e-6
_MAX_AMOUNT = 1e15

Amounts = Mapping[str, float | None]
"""Numbers by resource; None: not known."""


class PoolFacts(Struct):
    """One pool of the intent. `gpus` is resource → GPUs of one share, None if not known."""

    name: str
    card: str
    gpus: Mapping[str, float | None]
    price: Price | None = None


class ShareHours(Struct):
    """Shares of one resource: `hours` are share-hours, `gpus` the GPU-hours that these are. None: not known."""

    resource: str
    hours: float | None
    gpus: float | None
    cost: float | None


class Use(Struct):
    """What one namespace held of one pool, and used of its memory, in GiB-hours. None: not known.

    `pool` is empty for shares on nodes whose runtime was not scraped at the time.
    """

    namespace: str
    pool: str
    held: tuple[ShareHours, ...] = ()
    memory: float | None = None

    @property
    def gpus(self) -> float | None:
        """The GPU-hours of all its shares."""
        return total(one.gpus for one in self.held) if self.held else None

    @property
    def cost(self) -> float | None:
        """The price of all its shares."""
        return total(one.cost for one in self.held) if self.held else None


class Gap(Struct):
    """Consecutive hours in which samples are missing, in seconds since 1970; `missing` counts hours."""

    start: int
    end: int
    missing: float


class MetricGaps(Struct):
    """A metric whose steps are counted, of a pool or (`pool` empty) of all nodes; `gaps` by time."""

    metric: str
    pool: str
    gaps: tuple[Gap, ...]

    @property
    def missing(self) -> float:
        """How many hours are missing."""
        return sum(gap.missing for gap in self.gaps)


class PoolUsage(Struct):
    """What one pool offered and namespaces held of it, in share-hours by resource. `facts` None: it is not in the intent."""

    name: str
    facts: PoolFacts | None
    offered: Amounts
    held: Amounts


class UsageReport(Struct):
    """The usage of one cluster from `start` up to `end`, in seconds since 1970."""

    start: int
    end: int
    uses: tuple[Use, ...]
    pools: tuple[PoolUsage, ...]
    sources: tuple[MetricGaps, ...]
    warnings: tuple[str, ...]

    @property
    def hours(self) -> int:
        """The length of the period."""
        return (self.end - self.start) // HOUR


def facts(pool: PoolPlan, price: Price | None) -> PoolFacts:
    """Return what a report needs of a pool."""
    return PoolFacts(name=pool.name, card=pool.card.id, gpus=costs.parts_of_resources(pool), price=price)


def build(
    prometheus: Prometheus,
    pools: Iterable[PoolFacts],
    period: tuple[int, int],
    *,
    cluster: str = "",
    tell: Callable[[str], None] = lambda _: None,
) -> UsageReport:
    """Return the report of whole hours. PrometheusError. `tell` is called with what is read next."""
    start, end = period
    known = {pool.name: pool for pool in pools}
    names = {_NOT_EXPORTED.sub("_", resource): resource for pool in known.values() for resource in pool.gpus}
    totals: dict[str, dict[tuple[str, ...], float | None]] = {title: {} for title in showback.queries()}
    steps: dict[tuple[str, str], Counter[int]] = {(showback.NODES, ""): Counter()}
    steps |= {(showback.RUNTIMES, name): Counter() for name in sorted(known)}
    clusters: set[str] = set()
    for first in range(start, end, DAY):
        last = min(first + DAY, end)
        tell(f"hours {(first - start) // HOUR} to {(last - start) // HOUR} of {(end - start) // HOUR}")
        clusters |= named_clusters(prometheus, last - 1, named=showback.CLUSTERS, renamed=showback.renamed(cluster))
        refuse_several(clusters, cluster)
        for title, query in showback.queries(cluster).items():
            _add(totals[title], prometheus.at(showback.over(query, last - first), last - 1), title, names)
        for metric, query in showback.scraped(cluster).items():
            for one in prometheus.between(query, first + HOUR - 1, last - 1, HOUR):
                pool = "" if metric == showback.NODES else label_value(one, "pool", metric)
                steps.setdefault((metric, pool), Counter()).update(_by_hour(one, metric))
    refuse_unknown(clusters, cluster)
    sources = tuple(
        MetricGaps(metric=metric, pool=pool, gaps=tuple(_gaps(counts, start, end))) for (metric, pool), counts in steps.items()
    )
    if all(source.missing == (end - start) // HOUR for source in sources if source.metric != showback.SHARES):
        hint = "its retention may be shorter (--storage.tsdb.retention.time), or it scrapes another cluster"
        raise PrometheusError("Prometheus has no sample of kube-state-metrics or of a runtime in this period", hint)
    return UsageReport(
        start=start,
        end=end,
        uses=tuple(_uses(totals, known)),
        pools=tuple(_pools(totals, known)),
        sources=sources,
        warnings=tuple(prometheus.warnings),
    )


_KEYS = {
    showback.BY_NAMESPACE: ("namespace", "resource"),
    showback.BY_POOL: ("pool", "namespace", "resource"),
    showback.MEMORY: ("pool", "namespace"),
    showback.OFFERED: ("pool", "resource"),
}


def _add(sums: dict[tuple[str, ...], float | None], found: Iterable[Series], title: str, names: Mapping[str, str]) -> None:
    for one in found:
        key = tuple(label_value(one, label, title) for label in _KEYS[title])
        key = (*key[:-1], names.get(key[-1], key[-1])) if _KEYS[title][-1] == "resource" else key
        before, [(_, value)] = sums.get(key, 0.0), one.points
        _check(value, title)
        sums[key] = None if before is None or value is None else before + value


def _check(value: float | None, what: str) -> None:
    if value is not None and not 0 <= value <= _MAX_AMOUNT:
        hint = "an amount is not negative; --prometheus may name a server that is not Prometheus"
        raise PrometheusError(f"{what}: Prometheus answers {value:g}, which no cluster can have", hint)


def _by_hour(one: Series, metric: str) -> dict[int, int]:
    for _, value in one.points:
        _check(value, metric)
    return {int(time) // HOUR * HOUR: int(value or 0) for time, value in one.points}


def _gaps(steps: Mapping[int, int], start: int, end: int) -> Iterator[Gap]:
    """Yield the hours with fewer steps than an hour has, consecutive ones as one."""
    begun: int | None = None
    missing = 0
    for hour in (*range(start, end, HOUR), end):
        lost = _STEPS - min(steps.get(hour, 0), _STEPS) if hour < end else 0
        if lost:
            begun = hour if begun is None else begun
            missing += lost
        elif begun is not None:
            yield Gap(start=begun, end=hour, missing=missing / _STEPS)
            begun, missing = None, 0


def _uses(totals: Mapping[str, Mapping[tuple[str, ...], float | None]], known: Mapping[str, PoolFacts]) -> Iterator[Use]:
    """Yield what each namespace held, by namespace and pool."""
    shares: dict[tuple[str, str], dict[str, float | None]] = {}
    left = dict(totals[showback.BY_NAMESPACE])
    for (pool, namespace, resource), number in totals[showback.BY_POOL].items():
        shares.setdefault((namespace, pool), {})[resource] = number
        before = left.get((namespace, resource))
        left[namespace, resource] = None if before is None or number is None else before - number
    for (namespace, resource), number in left.items():
        if number is not None and number > _ROUNDING:
            shares.setdefault((namespace, ""), {})[resource] = number
    memory = {(namespace, pool): number for (pool, namespace), number in totals[showback.MEMORY].items()}
    for namespace, pool in sorted(shares.keys() | memory.keys()):
        held = shares.get((namespace, pool), {})
        yield Use(
            namespace=namespace,
            pool=pool,
            held=tuple(_held(resource, held[resource], known.get(pool)) for resource in sorted(held)),
            memory=memory.get((namespace, pool)),
        )


def _held(resource: str, hours: float | None, facts: PoolFacts | None) -> ShareHours:
    gpus = _product(hours, facts.gpus.get(resource)) if facts else None
    price = facts.price.per_hour if facts and facts.price else None
    return ShareHours(resource=resource, hours=hours, gpus=gpus, cost=_product(gpus, price))


def _pools(totals: Mapping[str, Mapping[tuple[str, ...], float | None]], known: Mapping[str, PoolFacts]) -> Iterator[PoolUsage]:
    offered: dict[str, dict[str, float | None]] = {}
    for (pool, resource), number in totals[showback.OFFERED].items():
        offered.setdefault(pool, {})[resource] = number
    held: dict[str, dict[str, float | None]] = {}
    for (pool, _, resource), number in totals[showback.BY_POOL].items():
        numbers = held.setdefault(pool, {})
        before = numbers.get(resource, 0.0)
        numbers[resource] = None if before is None or number is None else before + number
    for name in sorted(known.keys() | offered.keys() | held.keys()):
        yield PoolUsage(name=name, facts=known.get(name), offered=offered.get(name, NOTHING), held=held.get(name, NOTHING))


def _product(number: float | None, factor: float | None) -> float | None:
    return None if number is None or factor is None else number * factor
