"""From answers to a report: sums over days, gaps, GPU-hours, and series that are not as the queries expect."""

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.core.prices import Price
from gpushare.render.monitoring import showback
from gpushare.report import text, usage
from gpushare.report.terminal import Style
from gpushare.study.measured import usage_report
from gpushare.study.measured.prometheus import Prometheus, PrometheusError
from gpushare.study.measured.usage_report import Gap, PoolFacts, UsageReport
from tests.compiler.rules.intents import pool, written
from tests.compiler.study.measured.prometheus_double import Double, Samples, serving, usual

HOUR = 3600
SHARED = "nvidia.com/gpu.shared"
EXPORTED = "nvidia_com_gpu_shared"
NOTEBOOKS = PoolFacts(name="notebooks", card="t4", gpus={SHARED: 0.25}, price=Price(per_hour=0.4, currency="EUR"))
BY_NAMESPACE, BY_POOL, MEMORY, OFFERED = (
    showback.queries()[title].partition("(sum_over_time")[0]
    for title in (showback.BY_NAMESPACE, showback.BY_POOL, showback.MEMORY, showback.OFFERED)
)
IN_POOL = {"pool": "notebooks", "namespace": "a"}


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as server:
        yield server


def report(double: Double, numbers: Mapping[str, Samples], *, hours: int = 24, cluster: str = "") -> UsageReport:
    double.values = usual(numbers)
    prometheus = Prometheus(double.url, {}, token="", ca_file="", timeout_seconds=5)
    return usage_report.build(prometheus, [NOTEBOOKS], (0, hours * HOUR), cluster=cluster)


def test_days_are_queried_by_themselves_and_added_up(double: Double) -> None:
    labels = {"namespace": "a", "resource": EXPORTED}
    numbers: dict[str, Samples] = {
        BY_NAMESPACE: [(labels, 12)],
        BY_POOL: [({**labels, "pool": "notebooks"}, 12)],
        MEMORY: [(IN_POOL, 1.5)],
        OFFERED: [({"pool": "notebooks", "resource": EXPORTED}, 96)],
    }
    found = report(double, numbers, hours=60)
    [use] = found.uses
    assert [(one.resource, one.hours, one.gpus) for one in use.held] == [(SHARED, 36, 9)]
    assert use.cost == pytest.approx(3.6)
    assert (use.memory, found.hours) == (4.5, 60)
    assert [(dict(one.offered), dict(one.held)) for one in found.pools] == [({SHARED: 288}, {SHARED: 36})]
    asked = [query for path, query, _ in double.requests if path.endswith("/query") and query["query"].startswith(MEMORY)]
    assert [(one["time"], one["query"].partition("\n)[")[2][:7]) for one in asked] == [
        (str(24 * HOUR - 1), "86400s:"),
        (str(48 * HOUR - 1), "86400s:"),
        (str(60 * HOUR - 1), "43200s:"),
    ]
    assert found.sources[0].gaps == ()


def test_shares_on_nodes_that_were_not_scraped_are_without_a_pool_and_unused_memory_is_unknown(double: Double) -> None:
    labels = {"namespace": "a", "resource": EXPORTED}
    found = report(double, {BY_NAMESPACE: [(labels, 12)], BY_POOL: [({**labels, "pool": "notebooks"}, 8)]})
    assert [(use.pool, use.held[0].hours, use.gpus, use.memory) for use in found.uses] == [
        ("", 4, None, None),
        ("notebooks", 8, 2, None),
    ]


def test_pool_of_another_intent_and_a_number_that_is_none_are_unknown(double: Double) -> None:
    labels = {"namespace": "a", "resource": EXPORTED}
    numbers: dict[str, Samples] = {
        BY_NAMESPACE: [(labels, "NaN")],
        BY_POOL: [({**labels, "pool": "notebooks"}, "NaN"), ({**labels, "pool": "old"}, 2)],
    }
    found = report(double, numbers)
    assert [(use.pool, use.held[0].hours, use.gpus, use.cost) for use in found.uses] == [
        ("notebooks", None, None, None),
        ("old", 2, None, None),
    ]


def test_hours_with_few_samples_are_gaps(double: Double) -> None:
    half = report(double, {"count_over_time(group(": [({}, 6)]}, hours=2)
    assert half.sources[0].gaps == (Gap(start=0, end=2 * HOUR, missing=1),)


def test_hours_without_samples_are_gaps(double: Double) -> None:
    def answer(handler: Any) -> None:
        path, query, _ = double.requests[-1]
        is_of_pools = "build_info" in query["query"]
        double.values = lambda query: [({} if "status" in query else {"pool": "notebooks"}, 12)] if "count_" in query else []
        if path.endswith("/query_range") and is_of_pools:
            double.requests[-1] = (path, {**query, "start": str(5 * HOUR - 1)}, {})  # nothing of the first four hours
        double.answer_as_prometheus(handler)

    double.answer = answer
    prometheus = Prometheus(double.url, {}, token="", ca_file="", timeout_seconds=5)
    found = usage_report.build(prometheus, [NOTEBOOKS], (0, 8 * HOUR))
    assert [(one.metric, one.pool, one.gaps) for one in found.sources] == [
        ("kube_node_status_condition", "", ()),
        ("gpushare_build_info", "notebooks", (Gap(start=0, end=4 * HOUR, missing=4),)),
        ("gpushare:pool_shares:sum", "notebooks", ()),
    ]


def test_hours_without_offered_shares_are_gaps_and_more_than_all_is_not_a_fraction(double: Double) -> None:
    labels = {"pool": "notebooks", "resource": EXPORTED}
    numbers: dict[str, Samples] = {
        BY_POOL: [({**labels, "namespace": "a"}, 48)],
        OFFERED: [(labels, 24)],
        "count_over_time(group by (pool) (gpushare:": [({"pool": "notebooks"}, 6)],
    }
    found = report(double, numbers)
    shown = text.render(usage.report(found, "north"), Style())
    assert ["notebooks", "gpu.shared", "24.00", "48.00", "-"] in [line.split() for line in shown.splitlines()]
    notes = "\n".join(usage.notes(found))
    assert "Not counted: OFFERED of pool notebooks, of which the recording rules have no samples: 12 of 24 hours" in notes
    assert "IN USE is not known where HELD is more than OFFERED: notebooks." in notes
    del numbers["count_over_time(group by (pool) (gpushare:"], numbers[OFFERED]
    numbers["count_over_time(group by (pool) (gpushare:"] = []  # without the rules, one note says it
    assert "OFFERED" in next(iter(usage.notes(report(double, numbers))))
    assert "Not counted" not in "".join(usage.notes(report(double, numbers)))


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({"count_over_time(group(": [], "count_over_time(group by (pool)": []}, "has no sample of kube-state-metrics"),
        (
            {"group by (__name__)": [({"__name__": "kube_pod_container_resource_requests"}, 1)]},
            "in the label exported_namespace",
        ),
        ({"group by (cluster)": [({"cluster": "north"}, 1), ({}, 1)]}, "several clusters: without the label and north"),
        ({"count_over_time(group by (pool)": [({}, 12)]}, "gpushare_build_info: Prometheus has series without the label pool"),
        ({MEMORY: [(IN_POOL, -1)]}, "GiB-hours by pool and namespace: Prometheus answers -1, which no cluster can have"),
        ({OFFERED: [({"pool": "a", "resource": EXPORTED}, 1e308)]}, "offered by pool: Prometheus answers 1e.308, which no"),
        ({"count_over_time(group(": [({}, -5)]}, "kube_node_status_condition: Prometheus answers -5"),
        (
            {MEMORY: [({"namespace": "a"}, 1)]},
            "GiB-hours by pool and namespace: Prometheus has series without the label pool",
        ),
    ],
)
def test_series_of_another_setup_are_an_error(double: Double, numbers: dict[str, Samples], message: str) -> None:
    with pytest.raises(PrometheusError, match=message):
        report(double, numbers)


def test_one_of_several_clusters_is_selected_in_every_query(double: Double) -> None:
    several: Samples = [({"cluster": "north"}, 1), ({"cluster": "south"}, 1)]
    report(double, {"group by (cluster)": several}, cluster="north")
    queries = [query["query"] for _, query, _ in double.requests if "[1d]" not in query["query"]]
    assert [query for query in queries if 'cluster="north"' not in query] == []
    assert 'max by (node, pool) (gpushare_build_info{cluster="north"})' in " ".join(queries)
    queries = [query["query"] for _, query, _ in double.requests if "exported_namespace" in query["query"]]
    assert [query for query in queries if 'cluster="north"' not in query] == []


@pytest.mark.parametrize(
    ("clusters", "hint"),
    [(["north", "south", ""], "it has north and south"), ([""], "its series have no label `cluster`: leave --cluster out")],
)
def test_cluster_that_has_no_series(double: Double, clusters: list[str], hint: str) -> None:
    found: Samples = [({"cluster": name} if name else {}, 1) for name in clusters]
    with pytest.raises(PrometheusError, match="no series of cluster 'east'") as problem:
        report(double, {"group by (cluster)": found}, cluster="east")
    assert problem.value.hint == hint
    asked = {query["query"] for _, query, _ in double.requests if query["query"].startswith("group by (cluster)")}
    assert all("gpushare_build_info" in query and "kube_pod_container_resource_requests" in query for query in asked)


@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (pool(), {SHARED: 0.25}),
        (pool(sharing="{mode: exclusive}"), {"nvidia.com/gpu": 1.0}),
        (
            pool(card="a100-sxm4-40gb", sharing="{mode: mig, layout: {3g.20gb: 1, 1g.5gb: 4}, replicas: {1g.5gb: 2}}"),
            {"nvidia.com/mig-3g.20gb": 0.5, "nvidia.com/mig-1g.5gb.shared": 0.0625},
        ),
        (pool(card="a100-sxm4-40gb", sharing="{mode: mig, layout: {1g.5gb: 7}}"), {"nvidia.com/mig-1g.5gb": 1 / 7}),
        (
            pool(
                card="a100-sxm4-40gb",
                sharing="{mode: mig, layouts: [{gpus: [0, 1], layout: {1g.5gb: 7}}, {gpus: [2], layout: {3g.20gb: 2}}, "
                "{gpus: [3], layout: none}]}",
            ),
            {"nvidia.com/mig-1g.5gb": 1 / 7, "nvidia.com/mig-3g.20gb": 0.5, "nvidia.com/gpu": 1.0},
        ),
        (  # 1g.5gb is a seventh of two GPUs, and an eighth of a third
            pool(
                card="a100-sxm4-40gb",
                gpusPerNode="3",
                sharing="{mode: mig, layouts: [{gpus: [0, 1], layout: {1g.5gb: 7}}, "
                "{gpus: [2], layout: {1g.5gb: 4, 3g.20gb: 1}}]}",
            ),
            {"nvidia.com/mig-1g.5gb": 2.5 / 18, "nvidia.com/mig-3g.20gb": 0.5},
        ),
    ],
)
def test_all_shares_of_a_gpu_are_one_gpu(text: str, gpus: dict[str, float]) -> None:
    plan = pipeline.compile_intent(written(text).encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    facts = usage_report.facts(plan.pools[0], None)
    assert facts.gpus == pytest.approx(gpus, abs=0.01)
    whole = sum((facts.gpus[one.name] or 0) * one.per_node for one in plan.pools[0].resources)
    assert whole == pytest.approx(len(plan.pools[0].gpus))
