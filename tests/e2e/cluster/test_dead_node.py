"""A node dies for good amid its change, with the pool's only slot: the others wait, until the documented way out is taken."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import A100, ClusterFixture, intent
from tests.e2e.cluster.test_changes import BOTH, SEVEN, SEVENS, THREE, THREES, await_offers, bring

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"


@pytest.fixture(scope="module")
def pool(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """Both nodes in one pool of one slot."""
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="training", node_2="training")
    bring(cluster_fixture, {SEVEN: 14}, SEVENS)
    return cluster_fixture


@pytest.fixture(scope="module")
def dead(pool: ClusterFixture) -> Iterator[str]:
    """The node that died: the first to be changed, whichever that was. It comes back at the end."""
    for node in BOTH:
        pool.fake_nvml(node).forget_calls()
        pool.fake_nvml(node).delay(CREATE, 110, times=1)
    pool.install(intent(training=THREES))

    def amid() -> list[str]:
        return [node for node in BOTH if any(CREATE in call for call in pool.fake_nvml(node).calls())]

    [name] = pool.cluster.wait(amid, "a node is amid its change")
    lost = pool.node(name)
    lost.stop_kubelet()
    pool.fleet.stop_plugin(lost)
    lost.stop_pods()
    for one in BOTH:
        pool.fake_nvml(one).heal()
    yield name
    lost.start_kubelet()
    pool.fleet.start_plugin(pool.cluster, lost)
    pool.cluster.wait(lambda: pool.cluster.try_kubectl("get", "node", name).returncode == 0, f"{name} is back")
    pool.choose(**{name.replace("-", "_"): "training"})
    await_offers(pool, {THREE: 6}, (name,))


def test_other_node_is_unchanged_while_the_dead_node_is_in_the_cluster(pool: ClusterFixture, dead: str) -> None:
    """The DaemonSet waits for the dead node's pod, and the queue for its slot."""
    [other] = set(BOTH) - {dead}
    assert pool.slots()[0] == dead
    assert pool.offer(other) == {SEVEN: 14}
    assert not pool.taints(other)


def test_other_node_proceeds_when_the_dead_node_is_deleted(pool: ClusterFixture, dead: str) -> None:
    [other] = set(BOTH) - {dead}
    pool.cluster.kubectl("delete", "node", dead)
    # The garbage collector of pods does the same, up to a minute later.
    here = ("--field-selector", f"spec.nodeName={dead}", "--namespace", NAMESPACE)
    pool.cluster.kubectl("delete", "pods", *here, "--force", "--grace-period=0")
    await_offers(pool, {THREE: 6}, (other,))
    pool.cluster.wait(lambda: not pool.slots(), "both slots are over")
