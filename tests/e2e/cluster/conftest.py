"""The clusters of the tests: one for each worker, brought up once, taken down at the end, whatever happened."""

import fcntl
import functools
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster import ROOT, Cluster
from tests.e2e.cluster.cluster_fixture import A100, NOTEBOOKS, T4, TRAINING, ClusterFixture, intent

LONGEST = (
    "test_dra_change",
    "test_releases",
    "test_changes",
    "test_crashes",
    "test_examples",
    "test_dra",
    "test_outage",
    "test_faults",
    "test_tool",
    "test_amd",
    "test_busy_node",
    "test_helm_test",
    "test_dra_driver",
    "test_first_week",
    "test_dra_on_demand",
    "test_advise",
    "test_pacing",
    "test_tutorial",
    "test_tenants",
    "test_dra_upgrade",
    "test_observe",
)
"""Files that take minutes, the longest first: workers take whole files, and all are to end at about the same time."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put these first. Who selects others as well gets those after the clusters' tests."""
    places = {name: place for place, name in enumerate(LONGEST)}
    here = Path(__file__).parent
    items.sort(key=lambda item: places.get(item.path.stem, len(places)) if item.path.parent == here else len(places) + 1)


@contextmanager
def claimed_name() -> Iterator[str]:
    """A cluster's name that no other process of this machine has now, whatever its cache is. After a crash it is given again,
    and what was left is found by it."""
    ROOT.mkdir(parents=True, exist_ok=True)
    remove_leftovers()
    for number in itertools.count():
        name = f"gpushare-tests-{number}"
        with _claimed(ROOT / f"{name}.claimed") as is_ours:
            if is_ours:
                yield name
                return


@functools.cache
def remove_leftovers() -> None:
    """Take down the clusters of runs that were killed, which nobody claims: their programs would run on beside the tests."""
    for claim in ROOT.glob("*.claimed"):
        with _claimed(claim) as is_ours:
            for name in (claim.stem, by_hand(claim.stem)) if is_ours else ():
                ClusterFixture(name).down()


def by_hand(name: str) -> str:
    """The name of the cluster that a test brings up as a user, beside the claimed one."""
    return f"{name}-hand"


@contextmanager
def _claimed(file: Path) -> Iterator[bool]:
    """Whether the file is locked now; another process may have it."""
    with file.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@pytest.fixture(scope="session")
def running_cluster() -> Iterator[ClusterFixture]:
    """A running cluster of two nodes with fake GPUs. Its own, so that one brought up by hand is left alone."""
    with claimed_name() as name:
        cluster_fixture = ClusterFixture(name)
        try:
            cluster_fixture.up()
            yield cluster_fixture
        finally:
            cluster_fixture.down()


@pytest.fixture(scope="session")
def api() -> Iterator[Cluster]:
    """An API server and its controllers, without nodes: up in seconds, for what it alone decides."""
    with claimed_name() as name:
        cluster = Cluster(name, nodes=0)
        try:
            cluster.up()
            yield cluster
        finally:
            cluster.down()


@pytest.fixture(scope="session")
def cluster(running_cluster: ClusterFixture) -> Cluster:
    """The cluster alone, for what needs no GPUs."""
    return running_cluster.cluster


@pytest.fixture(scope="module")
def cluster_fixture(running_cluster: ClusterFixture) -> Iterator[ClusterFixture]:
    """The stage for a module that installs something: without a release, its nodes idle and in no pool, before and after."""
    running_cluster.clear()
    yield running_cluster
    running_cluster.clear()


@pytest.fixture(scope="module")
def pools(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """A pool of time-sliced T4s on node-1, and one of time-sliced MIG instances of A100s on node-2."""
    cluster_fixture.equip("node-1", T4)
    cluster_fixture.equip("node-2", A100)
    cluster_fixture.choose(node_1="notebooks", node_2="training")
    cluster_fixture.install(intent(notebooks=NOTEBOOKS, training=TRAINING))
    for node, pool in (("node-1", "notebooks"), ("node-2", "training")):
        cluster_fixture.await_offer(node, pool)
    return cluster_fixture
