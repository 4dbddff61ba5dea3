"""The cluster of the tests: brought up once, taken down at the end, whatever happened."""

from collections.abc import Iterator

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.lab import Lab


@pytest.fixture(scope="session")
def stage() -> Iterator[Lab]:
    """A running cluster of two nodes with fake silicon. Its own, so that one brought up by hand is left alone."""
    lab = Lab("gpushare-tests")
    try:
        lab.up()
        yield lab
    finally:
        lab.down()


@pytest.fixture(scope="session")
def cluster(stage: Lab) -> Cluster:
    """The cluster alone, for what needs no silicon."""
    return stage.cluster


@pytest.fixture(scope="module")
def lab(stage: Lab) -> Iterator[Lab]:
    """The stage for a module that installs something: without a release, its nodes idle and in no pool, before and after."""
    stage.clear()
    yield stage
    stage.clear()
