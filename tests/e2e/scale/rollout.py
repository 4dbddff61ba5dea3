"""`python -m tests.e2e.scale.rollout --nodes N`: two rollouts on N simulated nodes of a real API server; figures as JSON.

Brings up an API server and its controllers, without nodes of its own, and leaves nothing. 1,000 nodes take some ten minutes.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.cluster.bundles import NAMESPACE, compiled, namespace, rendered
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.cluster_fixture import intent
from tests.support.paths import ROOT

_FIELDS = "card: t4, sharing: {{mode: time-slicing, replicas: {}}}, rollout: {{maxUnavailable: 10%}}"
_NAME = "gpushare-scale"


def bundles(folder: Path) -> list[Path]:
    """One pool's first installation, and then a change that would disturb tenants."""
    texts = [intent(training=_FIELDS.format(replicas)).replace("gpusPerNode: 2", "gpusPerNode: 1") for replicas in (8, 4)]
    return [compiled(text, folder / str(number)) for number, text in enumerate(texts)]


@contextmanager
def installed(cluster: Cluster, bundle: Path) -> Iterator[None]:
    """The bundle's objects on the API server."""
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    objects = rendered(bundle, "--skip-tests")
    cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
    try:
        yield
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--wait=false", "--filename", "-", stdin=objects)


def inside(cluster: Cluster, module: str, *arguments: object) -> "subprocess.Popen[str]":
    """A program of this repository in the cluster's network, as administrator."""
    command = cluster.network.command(sys.executable, "-W", "ignore", "-m", module, *map(str, arguments))
    environment = {**os.environ, "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig")}
    return subprocess.Popen(
        [str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment
    )


def rolled_out(cluster: Cluster, nodes: int, folder: Path) -> list[dict[str, Any]]:
    """The figures of both rollouts."""
    both = bundles(folder)
    with installed(cluster, both[0]):
        process = inside(cluster, "tests.e2e.scale.simulation", "--nodes", nodes, *both)
        text, _ = process.communicate()
    assert process.returncode == 0, "what went wrong is on stderr"
    return list(json.loads(text))


@contextmanager
def control_plane(name: str = _NAME) -> Iterator[Cluster]:
    """A cluster without nodes of its own."""
    cluster = Cluster(name, nodes=0)
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    chosen = parser.parse_args()
    with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
        json.dump(rolled_out(cluster, chosen.nodes, Path(folder)), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
