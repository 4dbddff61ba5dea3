"""Every query of the rules and the dashboard, evaluated by a real Prometheus over a real runtime, returns what the tenants did.

One tenant stays within its cap, one exceeds it and is killed, and one exceeds it in a pool that only warns. The runtime's
metrics are scraped from its pods, and those of kube-state-metrics from its own process. dcgm-exporter's pages are written by
`exporters`, in the form of each of its generations.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from gpushare.render.monitoring.alerts import ALERTS, RECORDINGS
from gpushare.render.monitoring.dashboard import PANELS
from tests.e2e.cluster import exporters, prometheus
from tests.e2e.cluster.cluster_fixture import A100, COURSE, NOTEBOOKS, SHARED, SLICE, T4, ClusterFixture, intent
from tests.e2e.cluster.machine import MachineError
from tests.e2e.cluster.prometheus import Prometheus, Samples
from tests.support.fake_nvml import FakeNvml

LENIENT = "card: a100-sxm4-40gb, sharing: {mode: mig, layout: {1g.5gb: 7}, replicas: {1g.5gb: 2}}, enforcement: {action: warn}"
EXTRA = """\
  quotas: {course: {training: 1}}
  platform: {namespaces: [monitoring]}
  monitoring: {serviceMonitor: true, alerts: true, dashboard: true, operator: false}
"""
INSTANCE = 4864
"""MiB of a 1g.5gb."""
CAPS = {"node-1": 3724, "node-2": 2304}
WITHIN, BEYOND, GREEDY = 3524, 4224, 2804
"""MiB of the neighbour, of the offender in the end, and of the tenant that is only warned."""
MIB = 2**20
UNCERTAIN = {"instance", "job", "gpu"}
"""Labels that the scheduler, the device plugin or the test's configuration choose."""
SECONDS = 120.0

PROCESSES = "gpushare:pool_gpu_processes:max5m"
"""Its value depends on where the device plugin puts two tenants: `scene` sees that from their command lines."""

Rows = list[tuple[dict[str, str], float]]

ON_1 = {"node": "node-1", "pool": "notebooks"}
ON_2 = {"node": "node-2", "pool": "training"}
NEIGHBOUR = {**ON_1, "namespace": COURSE, "pod": "neighbour", "container": "work"}
WARNED = {**ON_2, "namespace": COURSE, "pod": "greedy", "container": "work"}


def each_pool(notebooks: float, training: float, **more: str) -> Rows:
    """A series for each pool."""
    return [({"pool": "notebooks", **more}, notebooks), ({"pool": "training", **more}, training)]


def shares(notebooks: float, training: float) -> Rows:
    """A series for the resource of each pool."""
    resources = {"notebooks": "nvidia_com_gpu_shared", "training": "nvidia_com_mig_1g_5gb_shared"}
    return [({**row, "resource": resources[row["pool"]]}, number) for row, number in each_pool(notebooks, training)]


def each_gpu(counter: str) -> Rows:
    """A series for each GPU of each form of dcgm-exporter, though it repeats it for each pod."""
    return [
        ({"UUID": uuid, "Hostname" if one.generation == 3 else "hostname": one.node}, figure)
        for one in exporters.EXPORTERS
        for uuid, figure in one.figures(counter).items()
    ]


def of_pools(counter: str, factor: float = 1) -> Rows:
    """A series for each of them that is in a pool, with its node and pool."""
    places = {"node-1": ON_1, "node-2": ON_2}
    return [
        ({"UUID": uuid, **places[exporters.NODES[uuid]]}, figure * factor)
        for one in exporters.EXPORTERS
        for uuid, figure in one.figures(counter).items()
        if uuid in exporters.NODES
    ]


RECORDED: Mapping[str, Rows] = {
    "gpushare:pool_shares:sum": shares(8, 28),
    # The offender has ended: its request counts no more.
    "gpushare:pool_shares_requested:sum": shares(1, 1),
    PROCESSES: [],
}
TRUE: Mapping[str, Rows] = {
    "GPUShareContainerOverCap": [(WARNED, 1)],
    "GPUShareKills": [(ON_1, 1)],
    "GPUShareRowRemapFailure": each_gpu("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    "GPUShareQuotaExhausted": [
        ({"namespace": COURSE, "resourcequota": "gpushare", "resource": "requests.nvidia.com/mig-1g.5gb.shared"}, 1),
    ],
}
"""The alerts whose expression has series; all others have none."""
STATES = {
    "GPUShareContainerOverCap": "pending",
    "GPUShareKills": "firing",
    "GPUShareQuotaExhausted": "pending",
    "GPUShareRowRemapFailure": "pending",
}
SHOWN: Mapping[str, tuple[Rows, ...]] = {
    "Shares of each pool": (shares(1, 1), shares(7, 27)),
    "Nodes by reason": (each_pool(1, 1, reason="Ready"), []),
    "Memory of containers, part of their cap": ([(NEIGHBOUR, WITHIN / CAPS["node-1"]), (WARNED, GREEDY / CAPS["node-2"])],),
    "Memory of containers": ([(NEIGHBOUR, WITHIN * MIB), (WARNED, GREEDY * MIB)],),
    "Memory of namespaces": (each_pool(WITHIN * MIB, GREEDY * MIB, namespace=COURSE),),
    "Warnings and kills in 15 minutes": (each_pool(1, 1), [({"pool": "notebooks", "outcome": "exited_term"}, 1)]),
    "Containers of which a process was ended last": ([({**NEIGHBOUR, "pod": "offender", "reason": "over-cap"}, 1)],),
    "Memory of GPUs in use": (
        [
            (ON_1, 0),
            (ON_1, WITHIN / 15360),
            (ON_2, 0),
            (ON_2, GREEDY / 40537),
            *[(ON_2, 0.0)] * 13,
            (ON_2, GREEDY / INSTANCE),
        ],
    ),
    "Utilisation (DCGM)": (of_pools("DCGM_FI_DEV_GPU_UTIL"),),
    "Utilisation by type of core (DCGM)": tuple(
        of_pools(f"DCGM_FI_PROF_{field}_ACTIVE") for field in ("SM", "PIPE_TENSOR", "PIPE_FP64", "PIPE_FP32", "PIPE_FP16")
    ),
    "Memory in use (DCGM)": (of_pools("DCGM_FI_DEV_FB_USED"),),
    "Power (DCGM)": (of_pools("DCGM_FI_DEV_POWER_USAGE"),),
    "Temperature (DCGM)": (of_pools("DCGM_FI_DEV_GPU_TEMP"),),
    "Clocks (DCGM)": (of_pools("DCGM_FI_DEV_SM_CLOCK", 1e6), of_pools("DCGM_FI_DEV_MEM_CLOCK", 1e6)),
    "NVLink (DCGM)": (of_pools("DCGM_FI_PROF_NVLINK_TX_BYTES"), of_pools("DCGM_FI_PROF_NVLINK_RX_BYTES")),
    "PCIe (DCGM)": (of_pools("DCGM_FI_PROF_PCIE_TX_BYTES"), of_pools("DCGM_FI_PROF_PCIE_RX_BYTES")),
}
"""For each panel the series of each of its queries."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """A query, and the series that it must return."""

    name: str
    query: str
    expected: Rows


CASES = (
    *(Case(name=one.name, query=one.name, expected=RECORDED.get(one.name, [])) for one in RECORDINGS),
    *(Case(name=one.name, query=one.expr, expected=TRUE.get(one.name, [])) for one in ALERTS),
    *(
        Case(name=f"{panel.title} {number}", query=query.expr.replace("$pool", ".*"), expected=SHOWN[panel.title][number])
        for panel in PANELS
        for number, query in enumerate(panel.queries)
    ),
)


def ordered(rows: Rows) -> list[Any]:
    """The series without the uncertain labels, comparable: Prometheus returns them in no order."""
    return sorted(
        (sorted((key, text) for key, text in found.items() if key not in UNCERTAIN), round(value, 6)) for found, value in rows
    )


def returned(samples: Samples) -> list[Any]:
    """The same of an answer."""
    return ordered([(dict(found), value) for found, value in samples.items()])


@dataclass(frozen=True, kw_only=True)
class Scene:
    """The cluster, its Prometheus, and of each case what is expected and the last answer."""

    fixture: ClusterFixture
    prometheus: Prometheus
    expected: dict[str, list[Any]]
    answers: dict[str, list[Any]]

    def look(self) -> bool:
        """Ask every query of the cluster as it is now. Returns whether all answers are as expected."""
        found = self.prometheus.samples(*(case.query for case in CASES))
        self.answers.update({case.name: returned(one) for case, one in zip(CASES, found, strict=True)})
        return self.answers == self.expected and self.states() == STATES

    def states(self) -> dict[str, str]:
        """The alerts that are pending or firing."""
        alerts = [rule for rule in self.prometheus.rules() if rule["type"] == "alerting"]
        return {rule["name"]: rule["state"] for rule in alerts if rule["state"] != "inactive"}


def most_on_a_gpu(fake_nvml: FakeNvml) -> int:
    """How many tenants of the node are on the GPU that has the most of them."""
    return max(len(gpu["processes"]) for gpu in fake_nvml.show())


@pytest.fixture(scope="module")
def monitored_cluster(cluster_fixture: ClusterFixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """The tenants have run, exceeded their caps and died, and Prometheus has seen it, or was given time enough to."""
    stage = cluster_fixture
    stage.equip("node-1", T4)
    stage.equip("node-2", A100)
    stage.choose(node_1="notebooks", node_2="training")
    stage.install(intent(notebooks=NOTEBOOKS, training=LENIENT) + EXTRA)
    for node, pool in (("node-1", "notebooks"), ("node-2", "training")):
        stage.await_offer(node, pool)
        stage.cluster.wait(lambda node=node: stage.is_ready(node), f"the runtime of {node} serves its metrics")
    assert stage.bundle is not None
    with prometheus.running(stage.cluster, stage.bundle, tmp_path_factory.mktemp("monitoring") / "prometheus") as server:
        stage.tenant("neighbour", "node-1", SHARED, "--mib", str(WITHIN))
        stage.tenant("greedy", "node-2", SLICE, "--mib", str(GREEDY))
        stage.tenant("offender", "node-1", SHARED, "--mib", str(WITHIN), "--grow-to", str(BEYOND), "--grow-after", "86400")
        stage.cluster.wait(lambda: server.samples("sum(gpushare_gpu_processes) == 3")[0], "Prometheus has seen all tenants")
        expected = {case.name: ordered(case.expected) for case in CASES}
        expected[PROCESSES] = ordered(each_pool(most_on_a_gpu(stage.fake_nvml("node-1")), 1))
        stage.let_grow("node-1")
        stage.cluster.wait(lambda: stage.phase("offender") in ("Failed", "Succeeded"), "the offender is ended")
        # Not before: the alert on what they report must not fire yet.
        server.publish()
        made = Scene(fixture=stage, prometheus=server, expected=expected, answers={})
        try:
            stage.cluster.wait(made.look, "every query returns what is expected", SECONDS)
        except MachineError as error:
            print(error)  # The tests below say which query does not, and what it returns.
        try:
            yield made
        finally:
            stage.dismiss("neighbour", "greedy", "offender")


def test_the_table_has_every_rule_and_every_panel() -> None:
    assert RECORDED.keys() == {one.name for one in RECORDINGS}
    assert TRUE.keys() <= {one.name for one in ALERTS}
    assert {title: len(rows) for title, rows in SHOWN.items()} == {one.title: len(one.queries) for one in PANELS}


def test_prometheus_evaluates_every_rule_without_an_error(monitored_cluster: Scene) -> None:
    rules = monitored_cluster.prometheus.rules()
    assert {rule["name"] for rule in rules} == {one.name for one in (*RECORDINGS, *ALERTS)}
    assert {(rule["health"], rule.get("lastError")) for rule in rules} == {("ok", None)}
    # On a slow machine what was pending may fire by now, and what a scrape has missed come back.
    monitored_cluster.fixture.cluster.wait(
        lambda: monitored_cluster.states().keys() == STATES.keys(), "the same alerts are pending or fire", SECONDS
    )


def test_prometheus_scrapes_each_runtime_once(monitored_cluster: Scene) -> None:
    def seen() -> list[Any]:
        [found] = monitored_cluster.prometheus.samples('up{job="gpushare"}')
        return returned(found)

    # A scrape that takes longer than a second on a slow machine is one that fails.
    monitored_cluster.fixture.cluster.wait(lambda: seen() == ordered([(ON_1, 1), (ON_2, 1)]), "both are scraped", SECONDS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_query_returns_the_usage_of_the_tenants(monitored_cluster: Scene, case: Case) -> None:
    assert monitored_cluster.answers[case.name] == monitored_cluster.expected[case.name], case.query


def test_labels_that_prometheus_does_not_honour_are_renamed(monitored_cluster: Scene) -> None:
    """Each form is what it is meant to be: of the tenants' pods and the exporter's own, one has the label `pod`."""
    queries = [f'DCGM_FI_DEV_GPU_UTIL{{job="{one.job}"}}' for one in exporters.EXPORTERS]

    def seen() -> list[Samples]:
        found = monitored_cluster.prometheus.samples(*queries)
        return found if all(found) else []

    found = monitored_cluster.fixture.cluster.wait(seen, "all exporters are scraped", SECONDS)
    for one, samples in zip(exporters.EXPORTERS, found, strict=True):
        tenants = {dict(labels).get("pod" if one.honoured else "exported_pod") for labels in samples}
        assert {"neighbour", "offender", "greedy"} <= tenants
        assert {dict(labels)["pod"] == one.target["pod"] for labels in samples} == ({True, False} if one.honoured else {True})
        assert {name for labels in samples for name in dict(labels) if name.lower() == "hostname"} == {
            "Hostname" if one.generation == 3 else "hostname"
        }


def test_no_panel_is_empty() -> None:
    assert all(any(panel) for panel in SHOWN.values())


def test_faults_of_a_gpu_reach_their_alerts(monitored_cluster: Scene) -> None:
    """The last test: the GPU that is lost and found again leaves traces in the counters."""
    fake_nvml = monitored_cluster.fixture.fake_nvml("node-1")
    expressions = {one.name: one.expr for one in ALERTS}

    def rows(name: str) -> list[dict[str, str]]:
        return [dict(found) for found in monitored_cluster.prometheus.samples(expressions[name])[0]]

    wait = monitored_cluster.fixture.cluster.wait
    try:
        fake_nvml.xid(1, 79)
        wait(lambda: rows("GPUShareXid") == [{**ON_1, "xid": "79"}], "the XID is reported", SECONDS)
        fake_nvml.unattributed(1, 2000)
        wait(lambda: [one["node"] for one in rows("GPUShareMemoryUnattributed")] == ["node-1"], "so is the memory", SECONDS)
        fake_nvml.lose(1)
        wait(
            lambda: [(one["node"], one["reason"]) for one in rows("GPUShareGpuLost")] == [("node-1", "GpuLost")],
            "so is the loss of the GPU",
            SECONDS,
        )
        wait(lambda: monitored_cluster.states().get("GPUShareXid") == "firing", "an XID fires at once", SECONDS)
        assert monitored_cluster.fixture.phase("neighbour") == "Running"
    finally:
        fake_nvml.find(1)
        fake_nvml.unattributed(1, 0)
