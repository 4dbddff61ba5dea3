"""The runtime is killed at every step of a change, on real nodes: each time kubelet's next start ends what was begun."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.cluster.cluster_fixture import ClusterFixture, intent
from tests.e2e.cluster.kill_on_write import WriteInterceptor, ambush
from tests.e2e.cluster.test_changes import BOTH, await_offers, mig, sleeper

ONE = ("a100-sxm4-40gb",)
STAYS, SMALL, LARGE = "nvidia.com/mig-3g.20gb", "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
LAYOUTS = (("{3g.20gb: 1, 2g.10gb: 1}", {STAYS: 1, LARGE: 1}), ("{3g.20gb: 1, 1g.5gb: 1}", {STAYS: 1, SMALL: 1}))
CALLS = 4
"""Of a change between these layouts: one instance goes, from the inside out, and one is made."""


def intended(layout: str) -> str:
    """The intent of this layout, on one GPU a node."""
    return intent(training=mig(layout, ", rollout: {maxUnavailable: 2}")).replace("gpusPerNode: 2", "gpusPerNode: 1")


def change(cluster_fixture: ClusterFixture) -> dict[str, int]:
    """From the one layout to the other, whichever stands; what a node offers then."""
    layout, offer = next((layout, offer) for layout, offer in LAYOUTS if offer != cluster_fixture.offer("node-1"))
    cluster_fixture.install(intended(layout))
    return offer


@pytest.fixture(scope="module")
def pool(cluster_fixture: ClusterFixture) -> Iterator[ClusterFixture]:
    """Both nodes, each with a tenant on the instance that all layouts have."""
    for node in BOTH:
        cluster_fixture.equip(node, ONE)
    cluster_fixture.choose(node_1="training", node_2="training")
    await_offers(cluster_fixture, change(cluster_fixture))
    for node in BOTH:
        cluster_fixture.tenant(f"neighbour-{node}", node, STAYS, "--mib", "1000")
    yield cluster_fixture
    cluster_fixture.dismiss(*(f"neighbour-{node}" for node in BOTH))


@pytest.fixture(scope="module")
def laid(pool: ClusterFixture, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WriteInterceptor]:
    """An ambush at the API server."""
    folder: Path = tmp_path_factory.mktemp("ambush")
    with ambush(pool.cluster, folder) as laid:
        yield laid


WRITES = (
    ("lease", 1),
    ("taints", 1),
    ("condition Partitioning", 1),
    ("labels", 1),
    ("taints", 2),
    ("lease", 2),
    ("condition Ready", 1),
)
"""All writes that a change needs, in their order. Between `taints` and `labels` is the driver's part."""

DEATHS = tuple((number, when) for number in range(1, CALLS + 1) for when in ("before", "after"))


@pytest.mark.failure_case(16)
@pytest.mark.parametrize(
    ("write", "call"),
    [
        pytest.param(write, call, id=f"{' '.join(map(str, write or ('no write',)))}, call {call[0]} {call[1]}")
        for write, call in itertools.zip_longest(WRITES, DEATHS)
    ],
)
def test_runtime_killed_at_any_step_finishes_the_change(
    pool: ClusterFixture, laid: WriteInterceptor, write: tuple[str, int] | None, call: tuple[int, str]
) -> None:
    """On the one node right before a write to the API server, on the other right before or after a call to the driver."""
    fake_nvml = pool.fake_nvml("node-2")
    fake_nvml.forget_calls()
    (fake_nvml.kill_before if call[1] == "before" else fake_nvml.kill_after)(call[0])
    if write is not None:
        laid.lay(pool.node("node-1"), *write)
    await_offers(pool, change(pool))
    assert [pool.phase(f"neighbour-{node}") for node in BOTH] == ["Running", "Running"]
    assert not pool.slots()
    assert laid.is_over
    again = [[int(write is not None), 0], [1, 0]]
    pool.cluster.wait(lambda: [pool.restarts(node) for node in BOTH] == again, "kubelet has started each again, once")


@pytest.mark.failure_case(16)
def test_runtime_killed_while_waiting_continues_to_wait(pool: ClusterFixture) -> None:
    """On the one node for a tenant, on the other for the device plugin."""
    before = pool.offer("node-1")
    sleeper(pool, "asleep", "node-1", next(name for name in before if name != STAYS))
    pool.fleet.stop_plugin(pool.node("node-2"))
    try:
        after = change(pool)
        for name, reason in zip(BOTH, ("GPUBusy", "WaitingForPlugin"), strict=True):
            pool.await_reason(name, reason)
            [pid] = pool.node(name).processes("apply", "--hold")
            os.kill(pid, signal.SIGKILL)
            pool.cluster.wait(lambda name=name: pool.restarts(name) == [1, 0], "kubelet has started it again")
            pool.await_reason(name, reason)
        assert "gpushare.dev/repartitioning" in pool.taints("node-2")
        pool.cluster.wait(lambda: not pool.taints("node-1"), "it gives way to others")
        assert pool.offer("node-1") == before
    finally:
        pool.fleet.start_plugin(pool.cluster, pool.node("node-2"))
        pool.dismiss("asleep")
    await_offers(pool, after)


def test_runtimes_keep_running_after_the_crashes(pool: ClusterFixture) -> None:
    for node in BOTH:
        pool.cluster.wait(lambda node=node: pool.is_ready(node), f"the runtime on {node} is Ready")
        assert pool.restarts(node) == [1, 0]
