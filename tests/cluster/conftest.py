"""The clusters of the tests: one for each worker, brought up once, taken down at the end, whatever happened."""

import fcntl
import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.cluster.cluster import Cluster
from tests.cluster.lab import Lab
from tests.tools import cache


@contextmanager
def claimed_name() -> Iterator[str]:
    """A cluster's name that no other process has now. After a crash it is given again, and what was left is found by it."""
    cache.root().mkdir(parents=True, exist_ok=True)
    for number in itertools.count():
        name = f"gpushare-tests-{number}"
        with (cache.root() / f"{name}.claimed").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield name
            return


@pytest.fixture(scope="session")
def stage() -> Iterator[Lab]:
    """A running cluster of two nodes with fake silicon. Its own, so that one brought up by hand is left alone."""
    with claimed_name() as name:
        lab = Lab(name)
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
