"""From metrics to a patched intent and back to the cluster: real tenants, a real Prometheus, and the advice from its samples.

Prometheus scrapes the runtimes for a moment. The day before is written by promtool, as the same series with the same labels:
what the runtime calls differently, or no longer serves, is not in the history.
"""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import prometheus
from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import COURSE, NEVER, SHARED, T4, ClusterFixture, intent
from tests.e2e.cluster.prometheus import Labels, Samples
from tests.e2e.cluster.test_changes import BOTH, await_offers

NOTEBOOKS = "card: t4, sharing: {mode: time-slicing, replicas: 3}, enforcement: {grace: 2s}"
EXTRA = """\
  platform: {namespaces: [monitoring]}
  monitoring: {serviceMonitor: true, alerts: true, dashboard: true, operator: false}
"""
TENANTS = {f"job-{number}": 1200 + 50 * number for number in range(12)}
"""MiB of each. Six on a node take all that it offers."""
MOST = 2200
"""MiB that each uses for ten minutes of every twelfth hour, one tenant in each hour: so the most is the same in all parts of
the history, and a share must hold that much. A sixth of a T4 does, a seventh does not."""
CAP = 2483
"""MiB of a sixth of a T4 without the reserve."""
MIB = 2**20
HOUR, STEP = 3600, 120
HOURS = 24
URL = "http://127.0.0.1:9090"
RENAMED = "renamed"
"""The job that scrapes the same runtimes as a PodMonitor without honorLabels does."""
TARGET = {"namespace": NAMESPACE, "pod": "gpushare-notebooks-abcde", "container": "enforce"}
"""The labels that a PodMonitor gives a target."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """The cluster whose tenants run, and what Prometheus has scraped of the runtimes: by job, each series with its name."""

    fixture: ClusterFixture
    bundle: Path
    scraped: dict[str, Samples]

    @property
    def intent(self) -> Path:
        """The file that the bundle is of."""
        return self.bundle.parent / "intent.yaml"

    def gpushare(self, *arguments: object) -> "subprocess.CompletedProcess[str]":
        """Run the command where Prometheus can be reached."""
        line = self.fixture.cluster.network.command(sys.executable, "-m", "gpushare", *map(str, arguments))
        return subprocess.run([str(word) for word in line], capture_output=True, text=True, check=False)

    def advise(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """`gpushare advise` of as much as the history has."""
        return self.gpushare("advise", self.intent, "--usage", URL, "--window", f"{HOURS}h", *arguments)


@pytest.fixture(scope="module")
def measured(cluster_fixture: ClusterFixture, tmp_path_factory: pytest.TempPathFactory) -> Measured:
    """Twelve tenants run, and Prometheus, which has stopped again, has seen what they use."""
    stage = cluster_fixture
    for node in BOTH:
        stage.equip(node, T4)
    stage.choose(node_1="notebooks", node_2="notebooks")
    stage.install(intent(notebooks=NOTEBOOKS) + EXTRA)
    for node in BOTH:
        stage.await_offer(node, "notebooks")
        # Kubelet tells the address of the runtime's pod, which is scraped, by then.
        stage.cluster.wait(lambda node=node: stage.is_ready(node), f"the runtime of {node} serves its metrics")
    for number, (name, mib) in enumerate(TENANTS.items()):
        stage.start(name, BOTH[number % 2], SHARED, "--mib", str(mib))
    for name in TENANTS:
        stage.await_tenant(name, "ready")
    assert stage.bundle is not None
    folder = tmp_path_factory.mktemp("live")
    with prometheus.running(stage.cluster, with_another_job(stage.bundle, folder), folder / "prometheus") as server:

        def seen() -> dict[str, Samples]:
            # The name of a metric is not among a sample's labels: it becomes one.
            jobs = ("gpushare", RENAMED)
            # Without histograms, of which the history would consist for the most part.
            queries = (f'label_replace({{job="{job}",le=""}}, "metric", "$1", "__name__", "(.+)")' for job in jobs)
            found = dict(zip(jobs, server.samples(*queries), strict=True))
            return found if all(used_mib(one) == TENANTS for one in found.values()) else {}

        # The runtime looks every second, and Prometheus scrapes every second.
        scraped = stage.cluster.wait(seen, "both jobs have scraped what all tenants use")
    return Measured(fixture=stage, bundle=stage.bundle, scraped=scraped)


def with_another_job(bundle: Path, folder: Path) -> Path:
    """The bundle's monitoring in `folder`, with its job a second time, which renames the labels of the metrics."""
    shutil.copytree(bundle / "monitoring", folder / "monitoring")
    file = folder / "monitoring" / "scrape.yaml"
    jobs = yaml.safe_load(file.read_text())["scrape_configs"]
    [job] = [one for one in jobs if one["job_name"] == "gpushare"]
    named = [*job["relabel_configs"], *({"target_label": name, "replacement": text} for name, text in TARGET.items())]
    other = {**job, "job_name": RENAMED, "honor_labels": False, "relabel_configs": named}
    file.write_text(yaml.safe_dump({"scrape_configs": [*jobs, other]}))
    return folder


def used_mib(found: Samples) -> dict[str, float]:
    """What each tenant uses, as the samples say."""
    return {user: value / MIB for user, value in ((user_of(one), value) for one, value in found.items()) if user}


def user_of(found: Labels) -> str:
    """The tenant whose use of memory a series is; empty: it is another series."""
    pairs = dict(found)
    is_use = pairs["metric"] == "gpushare_container_gpu_memory_used_bytes"
    return pairs.get("exported_pod") or pairs.get("pod", "") if is_use else ""


def lines(found: Samples, end: int) -> Iterator[str]:
    """The history of these series until `end`, in the text format of OpenMetrics: use as MOST says, all else as it is now."""
    for one, value in found.items():
        pairs, user = dict(one), user_of(one)
        name = pairs.pop("metric")
        named = ",".join(f"{key}={json.dumps(text)}" for key, text in sorted(pairs.items()))
        turn = [*TENANTS].index(user) if user else 0
        for at in range(end - HOURS * HOUR, end, STEP):
            hour, minute = at // HOUR, at % HOUR // 60
            is_most = user and hour % len(TENANTS) == turn and 20 <= minute < 30
            yield f"{name}{{{named}}} {MOST * MIB if is_most else value:.0f} {at}\n"
    yield "# EOF\n"


def write_history(found: Samples, folder: Path) -> None:
    """Let promtool write the data of a Prometheus that will run in `folder`."""
    folder.mkdir()
    text = folder / "history.txt"
    with text.open("w") as file:
        file.writelines(lines(found, int(time.time()) // HOUR * HOUR))
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, folder / "data"], check=True)


def test_stopped_prometheus_is_refused(measured: Measured) -> None:
    before = measured.intent.read_bytes()
    done = measured.advise("--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"cannot reach {URL}" in done.stderr
    assert measured.intent.read_bytes() == before


def test_renamed_labels_are_refused(measured: Measured, tmp_path: Path) -> None:
    before, folder = measured.intent.read_bytes(), tmp_path / "prometheus"
    write_history(measured.scraped[RENAMED], folder)
    with prometheus.running(measured.fixture.cluster, measured.bundle, folder):
        done = measured.advise("--write")
    assert (done.returncode, done.stdout) == (2, "")
    assert "the tenant's namespace is in the label exported_namespace" in done.stderr
    assert measured.intent.read_bytes() == before


def test_advice_is_written_compiled_installed_and_enforced(measured: Measured, tmp_path: Path) -> None:
    """The last test: it changes the nodes."""
    stage, before, folder = measured.fixture, measured.intent.read_text(), tmp_path / "prometheus"
    write_history(measured.scraped["gpushare"], folder)
    with prometheus.running(stage.cluster, measured.bundle, folder):
        done = measured.advise("--write", "--format", "json")
    assert done.returncode == 0, done.stderr
    advice = json.loads(done.stdout)
    check_advice(advice)
    assert measured.intent.read_text() == before.replace("replicas: 3", "replicas: 6")

    for command in ("check", "compile"):
        done = measured.gpushare(command, measured.intent)
        assert done.returncode == 0, done.stderr
    stage.release.install(measured.bundle)
    change = advice["pools"]["notebooks"]["change"]
    await_offers(stage, {SHARED: change["sharesPerNode"]["after"]})
    check_cap(stage, change["capMiB"])
    assert {stage.phase(name) for name in TENANTS} == {"Running"}


def check_advice(advice: dict[str, Any]) -> None:
    """It is what MOST says, learned from all tenants and tested on all of them."""
    found = advice["pools"]["notebooks"]
    assert (advice["source"], advice["stepSeconds"]) == ("the node runtimes' metrics in Prometheus", STEP)
    assert (advice["written"], advice["warnings"], advice["leftOut"]) == (True, [], [])
    assert found["refusal"] is None
    course = found["namespaces"][COURSE]
    assert (course["containers"], course["mostBytes"], course["nearCap"]) == (len(TENANTS), MOST * MIB, 0)
    assert found["change"]["fields"] == {"sharing": {"mode": "time-slicing", "replicas": 6}}
    assert found["change"]["capMiB"] == CAP
    assert found["change"]["sharesPerNode"] == {"before": 6, "after": 12}
    assert found["change"]["gpus"] == {"before": 4, "after": 2}
    for test in (found["present"], found["change"]["backTest"]):
        assert (test["containers"], test["endings"]) == (len(TENANTS), [])


def check_cap(stage: ClusterFixture, cap_mib: int) -> None:
    """Beside the tenants that run, one with the most that was measured stays, and one that exceeds the new cap is ended."""
    stage.tenant("most", "node-1", SHARED, "--mib", str(MOST))
    stage.tenant("greedy", "node-1", SHARED, "--mib", str(MOST), "--grow-to", str(cap_mib + 1), "--grow-after", NEVER)
    stage.let_grow("node-1")
    stage.cluster.wait(lambda: stage.phase("greedy") in {"Failed", "Succeeded"}, "what exceeds the new cap is ended")
    told = f"its cap of {cap_mib} MiB"
    stage.cluster.wait(lambda: any(told in message for _, message in stage.events("greedy")), "an Event names the new cap")
    assert stage.phase("most") == "Running"
