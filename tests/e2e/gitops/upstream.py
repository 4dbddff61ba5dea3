"""A repository of charts with a stand-in for NVIDIA's operator, of which only a ClusterPolicy is left: it shows the values.

It has the two newest versions whose charts the catalogue knows.
"""

import json
import subprocess
import sys
from pathlib import Path

from gpushare.catalog import upstream
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


def package(folder: Path) -> None:
    """Write the packages and the index of the repository into the folder."""
    chart = upstream.chart("gpu-operator")
    sources = folder / "sources"
    for part in ("crds", "templates"):
        (sources / part).mkdir(parents=True)
    (sources / "crds" / "clusterpolicies.yaml").write_text(json.dumps(_DEFINITION) + "\n")
    (sources / "templates" / "clusterpolicy.yaml").write_text(_TEMPLATE)
    (sources / "values.yaml").write_text('devicePlugin: {config: {name: ""}}\n')
    for version in newest():
        (sources / "Chart.yaml").write_text(json.dumps({"apiVersion": "v2", "name": chart.name, "version": version}) + "\n")
        _helm("package", sources, "--destination", folder)
    _helm("repo", "index", folder)


def _helm(*arguments: str | Path) -> None:
    subprocess.run([str(helm.helm()), *map(str, arguments)], check=True, capture_output=True)
