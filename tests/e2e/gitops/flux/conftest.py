"""A cluster of two nodes with fake GPUs, Flux beside it, and a repository that it reads."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.cluster_fixture import A100, T4, ClusterFixture
from tests.e2e.cluster.conftest import claimed_name
from tests.e2e.gitops.flux.synced import Synced


@pytest.fixture(scope="package")
def synced() -> Iterator[Synced]:
    """T4s on node-1, A100s on node-2; nothing of a bundle before a module's first test and after its last."""
    with claimed_name() as name:
        cluster_fixture = ClusterFixture(name)
        try:
            cluster_fixture.up()
            cluster_fixture.equip("node-1", T4)
            cluster_fixture.equip("node-2", A100)
            synced = Synced(cluster_fixture)
            synced.start()
            yield synced
        finally:
            cluster_fixture.down()
