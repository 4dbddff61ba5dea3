"""A cluster of two nodes with fake GPUs, Flux beside it, and a repository that it reads."""

from collections.abc import Iterator

import pytest

from tests.e2e.gitops.flux.synced import Synced
from tests.e2e.gitops.synced import two_nodes


@pytest.fixture(scope="package")
def synced() -> Iterator[Synced]:
    """T4s on node-1, A100s on node-2; nothing of a bundle before a module's first test and after its last."""
    with two_nodes() as cluster_fixture:
        synced = Synced(cluster_fixture)
        synced.start()
        yield synced
