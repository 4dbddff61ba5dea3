"""A cluster on the API server's double, and the program run against it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.compiler.cli.process import gpushare
from tests.compiler.cluster.live.clusters import LiveCluster, lively
from tests.compiler.cluster.live.dra_cluster import of_dra
from tests.support.fake_api.server import ApiServer

Ask = Callable[..., CompletedProcess[str]]


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer(token="secret") as server:
        yield server


@pytest.fixture
def live(api: ApiServer) -> LiveCluster:
    return lively(api)


@pytest.fixture
def dra(api: ApiServer) -> LiveCluster:
    return of_dra(api)


@pytest.fixture
def ask(api: ApiServer, tmp_path: Path) -> Ask:
    """Run gpushare with a kubeconfig of the double."""
    environment = {**api.kubeconfig(tmp_path / "kubeconfig"), "COLUMNS": "120"}

    def run(*arguments: object, **more: str) -> CompletedProcess[str]:
        return gpushare(*arguments, environment={**environment, **more}, cwd=tmp_path)

    return run
