"""Use from Prometheus' answers: the most of each step, gaps, and series that are not as the queries expect."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.resolved.plan import Plan
from gpushare.study.advice import prometheus_history
from gpushare.study.advice.history import History
from gpushare.study.measured.prometheus import Prometheus, PrometheusError
from tests.compiler.rules.intents import pool, written
from tests.compiler.study.measured.prometheus_double import Double, Samples, serving

HOUR, DAY = 3600, 86400
START = 1_790_000_000 // DAY * DAY
MIB, GIB = 1 << 20, 1 << 30
TENANT = {"node": "n1", "pool": "notebooks", "namespace": "a", "pod": "p", "container": "c", "gpu": "GPU-1"}
SAMPLES, INTERVAL, CAPS = "sum(max by", "max(max_over_time", "min by (node"
OF_EACH = "max by (node, pool, namespace, pod, container, gpu) (max_over_time(gpushare_container_gpu_memory_"
USED, LARGEST_CAPS = f"{OF_EACH}used", f"{OF_EACH}cap"
HOURS, NODES = "count_over_time(group by", "max_over_time(count by"
DCGM_SAMPLES, DCGM_USED, DCGM_HOURS = "sum(max by (UUID", "max by (UUID", "count_over_time(group by (modelName)"


@pytest.fixture
def double() -> Iterator[Double]:
    with serving() as server:
        yield server


def plan(*pools: str) -> Plan:
    found = pipeline.compile_intent(written(*(pools or (pool(),))).encode(), "intent.yaml", lock.EMPTY).plan
    assert found is not None
    return found


def usual(numbers: dict[str, Samples]) -> Callable[[str], Samples]:
    scraped: dict[str, Samples] = {
        "group by (cluster) (last_over_time(gpushare": [({}, 1)],
        INTERVAL: [({}, 120)],
        SAMPLES: [({}, 2880)],
        HOURS: [({"pool": "notebooks"}, 12)],
        USED: [(TENANT, GIB)],
        CAPS: [(TENANT, 2 * GIB)],
        LARGEST_CAPS: [(TENANT, 2 * GIB)],
    }
    every = {**numbers, **scraped, **numbers}
    return lambda query: next((found for start, found in every.items() if query.startswith(start)), [])


def read(
    double: Double, numbers: dict[str, Samples] | None = None, hours: float = 24, cluster: str = "", **more: Any
) -> History:
    double.values = usual(numbers or {})
    prometheus = Prometheus(double.url, {}, token="", ca_file="", timeout_seconds=5)
    return prometheus_history.read(
        prometheus, plan(*more.get("pools", ())), (START, START + int(hours * HOUR)), cluster=cluster
    )


def asked(double: Double, start: str) -> list[dict[str, str]]:
    return [query for _, query, _ in double.requests if query["query"].startswith(start)]


def test_use_of_each_step_is_the_most_in_it_and_begins_with_it(double: Double) -> None:
    found = read(double, hours=36)
    [one] = found.containers
    assert (one.namespace, one.pod, one.container, one.pool, one.device) == ("a", "p", "c", "notebooks", "GPU-1")
    assert (one.points[0], one.points[-1]) == ((START, GIB), (START + 36 * HOUR - 60, GIB))
    assert (len(one.points), one.cap_bytes) == (36 * 60, 2 * GIB)
    assert (found.start, found.end, found.step_seconds) == (START, START + 36 * HOUR, 60)
    days = asked(double, USED)
    assert "max_over_time(gpushare_container_gpu_memory_used_bytes[60s])" in days[0]["query"]
    assert [(int(one["start"]) - START, int(one["end"]) - START, one["step"]) for one in days if "start" in one] == [
        (60, DAY, "60"),
        (DAY + 60, 36 * HOUR, "60"),
    ]
    assert (found.left_out, found.warnings, found.missing) == ((), (), {"notebooks": 0.0})
    assert found.assumed == (
        "each step of 60 s has the most of all samples in it; between two samples, 30 s apart, nothing is known",
    )


@pytest.mark.parametrize(
    ("numbers", "hours", "step"),
    [
        ({INTERVAL: [({}, 30)]}, 24, 120),  # scraped every 120 s
        ({INTERVAL: []}, 24, 60),  # no runtime says how often
        ({SAMPLES: [({}, 2 * 10**6)]}, 24, 300),  # of 30 s
        ({SAMPLES: [({}, 10**6)]}, 14 * 24, 300),
        ({SAMPLES: [({}, 4 * 10**7)]}, 24, 3600),
    ],
)
def test_step_follows_from_the_interval_and_from_what_can_be_read(
    double: Double, numbers: dict[str, Samples], hours: int, step: int
) -> None:
    found = read(double, numbers, hours=hours)
    assert found.step_seconds == step
    assert {one["step"] for one in asked(double, USED) if "step" in one} == {str(step)}


@pytest.mark.parametrize(
    ("numbers", "message"),
    [
        ({SAMPLES: [({}, 1e9)]}, "the window has 8,333,333 container-hours, more than can be read"),
        ({INTERVAL: [({}, 0.5)]}, "has a sample of each container only every 2h"),
        ({USED: [({**TENANT, "pool": ""}, GIB)]}, "without the label pool"),
        ({USED: [({"namespace": "a"}, GIB)]}, "without the label node"),
        ({USED: [(TENANT, -1)]}, "a use of -1 bytes, which no GPU has"),
        ({USED: [(TENANT, 1e18)]}, "a use of 1,000,000,000,000,000,000 bytes, which no GPU has"),
        (
            {"group by (__name__)": [({"__name__": "gpushare_container_gpu_memory_used_bytes"}, 1)]},
            "in the label exported_namespace",
        ),
        (
            {"group by (cluster)": [({"cluster": "north"}, 1), ({}, 1)]},
            "several clusters: without the label and north",
        ),
        ({"group by (cluster)": []}, "has no sample of gpushare_container_gpu_memory_used_bytes or of DCGM_FI_DEV_FB_USED"),
    ],
)
def test_series_of_another_setup_are_an_error(double: Double, numbers: dict[str, Samples], message: str) -> None:
    with pytest.raises(PrometheusError, match=message):
        read(double, numbers)


def test_window_of_less_than_an_hour_is_refused_and_others_are_whole_hours(double: Double) -> None:
    with pytest.raises(PrometheusError, match="shorter than an hour"):
        read(double, hours=0.5)
    prometheus = Prometheus(double.url, {}, token="", ca_file="", timeout_seconds=5)
    found = prometheus_history.read(prometheus, plan(), (START + 1, START + 3 * HOUR - 1))
    assert (found.start, found.end) == (START + HOUR, START + 2 * HOUR)


def test_series_of_other_pools_and_samples_that_are_no_numbers_are_left_out(double: Double) -> None:
    other = {**TENANT, "pool": "old"}
    found = read(double, {USED: [(TENANT, "NaN"), ({**TENANT, "pod": "q"}, GIB), (other, GIB), ({**other, "pod": "q"}, GIB)]})
    assert [one.pod for one in found.containers] == ["q"]
    assert found.left_out == (
        "1440 samples: not a number",
        "2 containers of pools that the intent does not have: old",
    )


def test_hours_without_samples_and_nodes_that_were_not_scraped_are_told(double: Double) -> None:
    double.warnings = ["partial response"]
    nodes = pool(nodes="{matchLabels: {node.example.org/flavour: gpu-t4}, expected: 5}")
    more = pool("other", nodes="{matchLabels: {node.example.org/flavour: d}}")
    found = read(double, {HOURS: [({"pool": "notebooks"}, 9)], NODES: [({"pool": "notebooks"}, 3)]}, pools=(nodes, more))
    assert found.missing == {"notebooks": 0.25, "other": 1.0}
    assert found.warnings == ("partial response", "pool notebooks: at most 3 of its 5 nodes were scraped at once")


def test_cap_that_changed_is_the_smallest_and_said(double: Double) -> None:
    found = read(double, {LARGEST_CAPS: [(TENANT, 3 * GIB)]})
    assert found.containers[0].cap_bytes == 2 * GIB
    assert "1 container had several caps in the window: the smallest counts" in found.assumed


def test_one_of_several_clusters_is_selected_in_every_query(double: Double) -> None:
    read(double, {"group by (cluster)": [({"cluster": "north"}, 1), ({"cluster": "south"}, 1)]}, cluster="north")
    queries = [query["query"] for _, query, _ in double.requests if not query["query"].startswith("group by (cluster)")]
    assert [query for query in queries if 'cluster="north"' not in query] == []
    with pytest.raises(PrometheusError, match="no series of cluster 'east'"):
        read(double, {"group by (cluster)": [({"cluster": "north"}, 1)]}, cluster="east")


def test_slow_and_broken_answers_are_errors(double: Double) -> None:
    def late(handler: Any) -> None:
        _, query, _ = double.requests[-1]
        if query["query"].startswith(USED):
            handler.send(200, '{"status": "success", "data": {"resultType": "matrix", "result": [{"metr')
        else:
            double.answer_as_prometheus(handler)

    double.answer = late
    with pytest.raises(PrometheusError, match="half a JSON text"):
        read(double)


GPU = {"UUID": "GPU-1", "modelName": "Tesla T4"}
WHOLE = pool(sharing="{mode: exclusive}")


def dcgm(*samples: tuple[dict[str, str], Any]) -> dict[str, Samples]:
    return {
        "group by (cluster) (last_over_time(gpushare": [],
        "group by (cluster) (last_over_time(DCGM": [({}, 1)],
        "max(max_over_time(count_over_time(DCGM": [({}, 120)],
        DCGM_HOURS: [({"modelName": "Tesla T4"}, 6)],
        DCGM_SAMPLES: [({}, 2880)],
        DCGM_USED: list(samples),
    }


@pytest.mark.parametrize("prefix", ["", "exported_"])
def test_dcgm_measures_whole_gpus_in_mib_however_the_tenants_labels_are_named(double: Double, prefix: str) -> None:
    own = {"namespace": "gpu-operator", "pod": "nvidia-dcgm-exporter-x7k2p", "container": "nvidia-dcgm-exporter"}
    tenant = {f"{prefix}namespace": "a", f"{prefix}pod": "p", f"{prefix}container": "c"}
    found = read(double, dcgm(({**own, **GPU, **tenant}, 700), ({**own, **GPU, "UUID": "GPU-2"}, 0)), pools=(WHOLE,))
    [one] = found.containers
    assert (one.namespace, one.pod, one.container, one.pool, one.device) == ("a", "p", "c", "notebooks", "GPU-1")
    assert one.points[0] == (START, 700 * MIB)
    assert (found.missing, found.step_seconds) == ({"notebooks": 0.5}, 60)
    assert found.assumed[0] == "use is all memory in use of the device that a container has, as dcgm-exporter measures it"


def test_dcgm_measures_mig_instances_by_themselves(double: Double) -> None:
    card = {"UUID": "GPU-1", "modelName": "NVIDIA A100-SXM4-40GB", "namespace": "a", "container": "c"}
    numbers = dcgm(*(({**card, "pod": f"p{at}", "GPU_I_ID": str(at)}, at) for at in (1, 2)), ({**card, "pod": ""}, 3))
    found = read(double, numbers, pools=(pool(card="a100-sxm4-40gb", sharing="{mode: mig, layout: {1g.5gb: 7}}"),))
    assert [(one.pod, one.device) for one in found.containers] == [("p1", "GPU-1/1"), ("p2", "GPU-1/2")]


def test_dcgm_of_devices_that_pods_share_is_refused(double: Double) -> None:
    tenant = {**GPU, "namespace": "a", "pod": "p", "container": "c"}
    with pytest.raises(PrometheusError, match="DCGM_FI_DEV_FB_USED does not do: pool notebooks shares its devices"):
        read(double, dcgm((tenant, 1)))
    both = (WHOLE, pool("second", sharing="{mode: exclusive}", nodes="{matchLabels: {node.example.org/flavour: c}}"))
    with pytest.raises(PrometheusError, match="pool notebooks has the same card as second: dcgm-exporter names no pool"):
        read(double, dcgm((tenant, 1)), pools=both)


def test_dcgm_of_a_device_with_several_pods_and_of_other_cards_is_left_out(double: Double) -> None:
    tenant = {**GPU, "namespace": "a", "container": "c"}
    shared = pool("shared", card="l4", nodes="{matchLabels: {node.example.org/flavour: c}}")
    numbers = dcgm(
        ({**tenant, "pod": "p"}, 1),
        ({**tenant, "pod": "q"}, 2),
        ({**tenant, "pod": "r", "UUID": "GPU-2"}, 3),
        ({**tenant, "pod": "s", "UUID": "GPU-3", "modelName": "NVIDIA H100"}, 4),
        ({**tenant, "pod": "t", "UUID": "GPU-4", "modelName": "NVIDIA L4"}, 5),
    )
    found = read(double, numbers, pools=(WHOLE, shared))
    assert [one.pod for one in found.containers] == ["r"]
    assert sorted(found.left_out) == [
        "1 container: has a card that the intent does not have",
        "1 container: its pool shared shares its devices: dcgm-exporter names one of the pods of a shared device, or none",
        "2 containers: has a device that several pods have",
    ]
