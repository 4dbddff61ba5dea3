"""`python -m tests.e2e.scale.rollout --nodes N`: two rollouts on N simulated nodes of a real API server; figures as JSON.

With `--backend dra` four: MIG by the device plugin, the same by NVIDIA's DRA driver, another layout, and the plugin again.
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
_DIVIDED = "card: a100-sxm4-40gb, backend: {}, sharing: {{mode: mig, layout: {{{}}}}}, rollout: {{maxUnavailable: {}}}"
_HALVES, _SEVENTHS = "3g.20gb: 2", "1g.5gb: 7"
_PLATFORM = '  kubernetes: "1.36"\n  platform: {stack: device-plugin, dra: {via: chart}}\n'
PLUGIN, DRA = "device-plugin", "dra"


def bundles(folder: Path, backend: str = PLUGIN) -> list[Path]:
    """One pool's first installation, and then a change that would disturb tenants."""
    fields = _FIELDS if backend == PLUGIN else f"backend: {backend}, {_FIELDS}"
    return _compiled(folder, *(fields.format(replicas) for replicas in (8, 4)))


def bundles_of_both(folder: Path) -> list[Path]:
    """One pool that is divided by MIG, without waiting: it goes over to DRA, gets another layout there, and goes back."""
    first = _DIVIDED.format(PLUGIN, _HALVES, "100%")
    steps = ((DRA, _HALVES), (DRA, _SEVENTHS), (PLUGIN, _SEVENTHS))
    return _compiled(folder, first, *(_DIVIDED.format(*step, "10%") for step in steps))


def _compiled(folder: Path, *pools: str) -> list[Path]:
    texts = [intent(training=one).replace("gpusPerNode: 2", "gpusPerNode: 1") for one in pools]
    texts = [text + _PLATFORM if "backend: dra" in text else text for text in texts]
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


def rolled_out(cluster: Cluster, nodes: int, folder: Path, backend: str = PLUGIN) -> list[dict[str, Any]]:
    """The figures of each rollout."""
    every = bundles(folder) if backend == PLUGIN else bundles_of_both(folder)
    with installed(cluster, every[0]):
        process = inside(cluster, "tests.e2e.scale.simulation", "--nodes", nodes, *every)
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
    parser.add_argument("--backend", choices=(PLUGIN, DRA), default=PLUGIN)
    chosen = parser.parse_args()
    with control_plane() as cluster, tempfile.TemporaryDirectory() as folder:
        json.dump(rolled_out(cluster, chosen.nodes, Path(folder), chosen.backend), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
