"""A node that fails is named by a condition of its pool's DaemonSet, which the real controller of DaemonSets leaves there."""

from typing import Any

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import CONDITION, NOTEBOOKS, SHARED, TRAINING, ClusterFixture, intent

WRONG = TRAINING.replace("a100-sxm4-40gb", "a30").replace("1g.5gb: 7", "1g.6gb: 4").replace("1g.5gb: 2", "1g.6gb: 2")


def failures(cluster_fixture: ClusterFixture, pool: str) -> list[dict[str, Any]]:
    """The conditions of a pool's DaemonSet that name a failing node."""
    status = cluster_fixture.cluster.get("daemonset", f"gpushare-{pool}", "--namespace", NAMESPACE)["status"]
    return [one for one in status.get("conditions", ()) if one["type"].startswith(f"{CONDITION}.")]


def test_failing_node_is_reported_until_its_pool_is_corrected(pools: ClusterFixture) -> None:
    pools.tenant("works", "node-1", SHARED)
    pools.install(intent(notebooks=NOTEBOOKS, training=WRONG))
    said = pools.await_reason("node-2", "CardMismatch")
    [named] = pools.cluster.wait(lambda: failures(pools, "training"), "the DaemonSet names the node")
    assert (named["status"], named["reason"]) == ("False", "CardMismatch")
    assert named["message"] == f"node node-2: {said['message']}"
    assert failures(pools, "notebooks") == []
    assert pools.phase("works") == "Running"
    pools.install(intent(notebooks=NOTEBOOKS, training=TRAINING))
    pools.await_offer("node-2", "training")
    pools.cluster.wait(lambda: failures(pools, "training") == [], "the DaemonSet names no node")
    pools.dismiss("works")
