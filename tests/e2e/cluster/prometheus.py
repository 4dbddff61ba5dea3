"""A real Prometheus in a cluster's network: it scrapes the runtime's pods as a bundle says, and evaluates the bundle's rules.

Debian builds Prometheus without discovery in Kubernetes: `kubernetes_sd_configs` is an unknown field. So the targets are
written to a file, from the pods that the configuration selects, each port with the labels that Prometheus' discovery documents;
the configuration's own relabeling applies to them. kube-state-metrics runs beside it. What dcgm-exporter would serve are pages
in a folder, which a small server of the standard library hands out.
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import yaml

from tests.e2e.cluster import kube_state_metrics, machine
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.exporters import EXPORTERS

_ADDRESS = "127.0.0.1:9090"
_PAGES = "127.0.0.1:9091"
_STATE = "127.0.0.1:9092"
_OWN_STATE = "127.0.0.1:9093"

_ASK = f"""
import json, sys, urllib.error, urllib.request
answers = []
for path in json.load(sys.stdin):
    try:
        answers.append(json.load(urllib.request.urlopen("http://{_ADDRESS}" + path, timeout=30)))
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        # While it starts, it answers in plain text.
        answers.append(json.loads(text) if text.startswith("{{") else {{"status": "error", "error": text}})
    except OSError as error:
        answers.append({{"status": "error", "error": str(error)}})
print(json.dumps(answers))
"""

Labels = frozenset[tuple[str, str]]
Samples = dict[Labels, float]


class PrometheusError(Exception):
    """Prometheus refuses a query. The text has the query, and what it says of it."""


def labels(**pairs: str) -> Labels:
    """The labels of a series."""
    return frozenset(pairs.items())


class Prometheus:
    """The server, as long as it runs."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.folder = folder

    def publish(self) -> None:
        """Let dcgm-exporter serve its pages from now on; until then they are empty."""
        for one in EXPORTERS:
            page = self.folder / "pages" / f"{one.job}.txt"
            scratch = page.with_suffix(".new")
            scratch.write_text("".join(f"{line}\n" for line in one.page()))
            scratch.rename(page)

    def samples(self, *queries: str) -> list[Samples]:
        """Labels, without the metric's name, and value of each series of each query, now. PrometheusError."""
        answers = self._ask(f"/api/v1/query?{_encoded(query)}" for query in queries)
        return [_samples(query, answer) for query, answer in zip(queries, answers, strict=True)]

    def rules(self) -> list[dict[str, Any]]:
        """The rules that it evaluates, each with its health, its last error and, for an alert, its state."""
        [answer] = self._ask(["/api/v1/rules"])
        groups = answer["data"]["groups"] if answer["status"] == "success" else ()
        return [rule for group in groups for rule in group["rules"]]

    def _ask(self, paths: Iterable[str]) -> list[dict[str, Any]]:
        command = [str(part) for part in self._cluster.network.command(sys.executable, "-c", _ASK)]
        done = subprocess.run(command, input=json.dumps([*paths]), capture_output=True, text=True, check=True)
        return list(json.loads(done.stdout))


@contextmanager
def running(cluster: Cluster, bundle: Path, folder: Path) -> Iterator[Prometheus]:
    """Prometheus with the plain files of a bundle: `monitoring/scrape.yaml` and `monitoring/rules.yaml`."""
    (folder / "pages").mkdir(parents=True)
    prometheus = Prometheus(cluster, folder)
    for one in EXPORTERS:
        (folder / "pages" / f"{one.job}.txt").touch()
    (folder / "prometheus.json").write_text(json.dumps(_configuration(cluster, bundle, folder)))
    host, port = _PAGES.split(":")
    python: tuple[str | Path, ...] = ("-m", "http.server", "--bind", host, port, "--directory", folder / "pages")
    server: tuple[str | Path, ...] = (
        "prometheus",
        "--config.file",
        folder / "prometheus.json",
        "--storage.tsdb.path",
        folder / "data",
        "--web.listen-address",
        _ADDRESS,
    )
    state = kube_state_metrics.command(cluster.control_plane.folder / "admin.kubeconfig", _STATE, _OWN_STATE)
    pids = [
        machine.start(cluster.network.command(*command), folder / f"{name}.log")
        for name, command in {"pages": (sys.executable, *python), "kube-state-metrics": state, "prometheus": server}.items()
    ]
    try:
        cluster.wait(lambda: _is_up(prometheus, pids), "Prometheus answers")
        yield prometheus
    finally:
        machine.stop(pids, seconds=10)


def _is_up(prometheus: Prometheus, pids: list[int]) -> bool:
    if not all(machine.is_running(pid) for pid in pids):
        logs = [file.read_text()[-2000:] for file in prometheus.folder.glob("*.log")]
        raise machine.MachineError("\n".join(["Prometheus or an exporter does not start:", *logs]))
    return bool(prometheus.rules())


def _configuration(cluster: Cluster, bundle: Path, folder: Path) -> dict[str, Any]:
    jobs = yaml.safe_load((bundle / "monitoring" / "scrape.yaml").read_text())["scrape_configs"]
    for number, job in enumerate(jobs):
        targets = [one for discovery in job.pop("kubernetes_sd_configs") for one in _targets(cluster, discovery)]
        (folder / f"targets-{number}.json").write_text(json.dumps(targets))
        job["file_sd_configs"] = [{"files": [str(folder / f"targets-{number}.json")]}]
    state = {"job_name": "kube-state-metrics", "honor_labels": True, "static_configs": [{"targets": [_STATE]}]}
    gpus = [
        {
            "job_name": one.job,
            "honor_labels": one.honoured,
            "metrics_path": f"/{one.job}.txt",
            "static_configs": [{"targets": [_PAGES], "labels": one.target}],
        }
        for one in EXPORTERS
    ]
    return {
        # A second instead of half a minute: tests wait for what it has seen.
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(bundle / "monitoring" / "rules.yaml")],
        "scrape_configs": [*jobs, state, *gpus],
    }


def _pods(cluster: Cluster, path: str, label: str) -> list[dict[str, Any]]:
    """The pods that run or will: one that kubelet has refused, or that is being deleted, may never have an address."""
    found = cluster.read(path, labelSelector=label)["items"]
    return [
        pod
        for pod in found
        if pod["status"].get("phase") in ("Pending", "Running") and "deletionTimestamp" not in pod["metadata"]
    ]


def _targets(cluster: Cluster, discovery: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The targets of an entry of `kubernetes_sd_configs` with the role `pod`: one for each port of each container."""
    [selector] = discovery["selectors"]
    assert discovery["role"] == selector["role"] == "pod"
    for namespace in discovery["namespaces"]["names"]:
        path, label = f"/api/v1/namespaces/{namespace}/pods", selector["label"]
        # Kubelet tells a pod's address after it has started the pod, and Prometheus ignores a pod without one.
        cluster.wait(
            lambda at=path, of=label: all("podIP" in pod["status"] for pod in _pods(cluster, at, of)), "pods have addresses"
        )
        for pod in _pods(cluster, path, label):
            meta = {
                f"__meta_kubernetes_pod_label_{re.sub(r'[^a-zA-Z0-9_]', '_', name)}": value
                for name, value in pod["metadata"]["labels"].items()
            }
            meta |= {"__meta_kubernetes_pod_node_name": pod["spec"]["nodeName"]}
            for container in pod["spec"]["containers"]:
                for port in container.get("ports", ()):
                    target = f"{pod['status']['podIP']}:{port['containerPort']}"
                    found = meta | {"__meta_kubernetes_pod_container_port_name": port.get("name", "")}
                    yield {"targets": [target], "labels": found}


def _encoded(query: str) -> str:
    return urlencode({"query": query})


def _samples(query: str, answer: dict[str, Any]) -> Samples:
    if answer["status"] != "success":
        raise PrometheusError(f"{query}: {answer['error']}")
    found = {}
    for one in answer["data"]["result"]:
        metric = {name: value for name, value in one["metric"].items() if name != "__name__"}
        found[labels(**metric)] = float(one["value"][1])
    return found
