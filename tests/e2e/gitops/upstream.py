"""A repository of charts with a stand-in for NVIDIA's operator, of which only a ClusterPolicy is left: it shows the values.

It has the two newest versions whose charts the catalogue knows. Tests may add other charts.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpushare.facts.catalog import upstream
from tests.e2e.cluster.machine import Network, start
from tests.support import helm

_PORT = 8879
CHARTS = f"http://127.0.0.1:{_PORT}"
"""The repository's address."""

_TEMPLATE = """\
apiVersion: nvidia.com/v1
kind: ClusterPolicy
metadata:
  name: cluster-policy
spec:
  chart: {{ .Chart.Version }}
  devicePlugin:
    config: {name: {{ .Values.devicePlugin.config.name | quote }}}
"""
_DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "clusterpolicies.nvidia.com"},
    "spec": {
        "group": "nvidia.com",
        "scope": "Cluster",
        "names": {"kind": "ClusterPolicy", "plural": "clusterpolicies"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


def serve(network: Network, folder: Path) -> None:
    """Package the chart and serve it in the cluster's network; the process ends with the network's others."""
    package(folder)
    server = (sys.executable, "-m", "http.server", str(_PORT), "--bind", "127.0.0.1", "--directory", folder)
    start([str(word) for word in network.command(*server)], folder / "server.log")


def newest() -> list[str]:
    """The two newest releases whose charts were read, the former first."""
    chart = upstream.chart("gpu-operator")
    return [version for version, _ in chart.releases if version not in chart.uncharted][-2:]


@dataclass(frozen=True)
class Chart:
    """A chart of one template."""

    name: str
    versions: list[str]
    template: str
    values: Mapping[str, Any]
    definitions: str = ""
    """Of kinds of its own."""


def package(folder: Path) -> None:
    """Write the packages and the index of the repository into the folder."""
    name, values = upstream.chart("gpu-operator").name, {"devicePlugin": {"config": {"name": ""}}}
    add(folder, Chart(name, newest(), _TEMPLATE, values, json.dumps(_DEFINITION) + "\n"))


def add(folder: Path, *charts: Chart) -> None:
    """Add charts to the repository."""
    for chart in charts:
        sources = folder / "sources" / chart.name
        for part, text in (("crds", chart.definitions), ("templates", chart.template)):
            if text:
                (sources / part).mkdir(parents=True)
                (sources / part / "objects.yaml").write_text(text)
        (sources / "values.yaml").write_text(json.dumps(chart.values) + "\n")
        for version in chart.versions:
            head = {"apiVersion": "v2", "name": chart.name, "version": version}
            (sources / "Chart.yaml").write_text(json.dumps(head) + "\n")
            _helm("package", sources, "--destination", folder)
    _helm("repo", "index", folder)


def _helm(*arguments: str | Path) -> None:
    subprocess.run([str(helm.helm()), *map(str, arguments)], check=True, capture_output=True)
