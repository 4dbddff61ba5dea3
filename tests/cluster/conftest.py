"""The cluster of the tests: brought up once, taken down at the end, whatever happened."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A running cluster of two nodes. Its own, so that one brought up by hand is left alone."""
    cluster = Cluster("gpushare-tests")
    try:
        cluster.up()
        yield cluster
    finally:
        cluster.down()
