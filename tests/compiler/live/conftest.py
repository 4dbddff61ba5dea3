"""A cluster on the API server's double, and the program run against it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.compiler.cli.process import gpushare
from tests.compiler.live.clusters import SHARED, LiveCluster
from tests.support.fake_api.server import ApiServer

Ask = Callable[..., CompletedProcess[str]]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(token="secret") as server:
        yield server


@pytest.fixture
def live(api: ApiServer) -> LiveCluster:
    """Two T4 nodes, of which one is not as wanted, and one A100 node; two pods hold shares."""
    cluster = LiveCluster(api)
    cluster.add_node("t4-1", "notebooks")
    cluster.add_node("t4-2", "notebooks", reason="GPUBusy", message="GPU 0: pod team/old uses it", allocatable={})
    cluster.add_node("a100-1", "training")
    api.add_node("cpu-1")
    owner = {"kind": "StatefulSet", "name": "lab", "uid": "1", "controller": True}
    api.add_pod("lab-0", namespace="team", node="t4-1", limits={SHARED: 1}, owner=owner)
    api.add_pod("train-0", namespace="physics", node="a100-1", limits={"nvidia.com/mig-2g.10gb": 1})
    api.add_pod("web", namespace="team", node="cpu-1")
    return cluster


@pytest.fixture
def ask(api: ApiServer, tmp_path: Path) -> Ask:
    """Run gpushare with a kubeconfig of the double."""
    environment = {**api.kubeconfig(tmp_path / "kubeconfig"), "COLUMNS": "120"}

    def run(*arguments: object, **more: str) -> CompletedProcess[str]:
        return gpushare(*arguments, environment={**environment, **more}, cwd=tmp_path)

    return run
