"""A cluster of four real nodes, of which one is busy: only Leases pace changes, so it stands in no other's way."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import A100, ClusterFixture, intent, offer_of, taints_of
from tests.e2e.cluster.conftest import claimed_name
from tests.e2e.cluster.test_changes import SHARED, await_offers, sleeper, slicing

BUSY, IDLE = "node-1", ("node-2", "node-3", "node-4")
ONE = ", rollout: {maxUnavailable: 1, onBusy: fail}"
"""The busy node says so at once, and tries again: its pod waits, and is not Ready, for as long as the tenant stays."""


@pytest.fixture(scope="module")
def four() -> Iterator[ClusterFixture]:
    """Four nodes in one pool, one of which has a tenant."""
    with claimed_name() as name:
        cluster_fixture = ClusterFixture(name, nodes=4)
        try:
            cluster_fixture.up()
            for node in (BUSY, *IDLE):
                cluster_fixture.equip(node, A100)
            cluster_fixture.choose(node_1="training", node_2="training", node_3="training", node_4="training")
            cluster_fixture.install(intent(training=slicing(8, ONE)))
            await_offers(cluster_fixture, {SHARED: 16}, (BUSY, *IDLE), 240)
            sleeper(cluster_fixture, "asleep", BUSY, SHARED)
            yield cluster_fixture
        finally:
            cluster_fixture.down()


@pytest.mark.failure_case(82)
def test_busy_node_does_not_block_an_idle_one(four: ClusterFixture) -> None:
    """Its new pod comes first and waits; with a budget of one the DaemonSet would replace no other."""
    cluster = four.cluster
    before = four.pod_of(BUSY)
    assert before is not None
    four.install(intent(training=slicing(4, ONE)))
    delete = ("delete", "pod", before["metadata"]["name"], "--namespace", NAMESPACE, "--ignore-not-found", "--wait=false")
    cluster.kubectl(*delete)
    out = 0

    def is_done() -> bool:
        nonlocal out
        # At one moment: between two reads one node may end its change, and another begin.
        states = four.states()
        out = max(out, sum(bool(taints_of(node)) for node in states.values()))
        return all(offer_of(states[node]) == {SHARED: 8} for node in IDLE)

    cluster.wait(is_done, "the idle nodes offer the new shares", 240)
    await_offers(four, {SHARED: 8}, IDLE, 120)
    assert out == 1, "one at a time, by Leases"
    four.await_reason(BUSY, "GPUBusy")
    assert (four.offer(BUSY), four.phase("asleep")) == ({SHARED: 16}, "Running")
    assert not four.is_ready(BUSY)
    four.dismiss("asleep")
    await_offers(four, {SHARED: 8}, (BUSY,), 240)
