"""`helm test` by both majors: a pod for each pool, which ends well only where the pool's shares can be had."""

import re
from typing import Any

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import SLICE, ClusterFixture
from tests.e2e.cluster.release import NAME, Release

NAMES = ["gpushare-test-notebooks", "gpushare-test-training"]


def found_pods(cluster_fixture: ClusterFixture) -> dict[str, Any]:
    """The pods of `helm test`, by name."""
    found = cluster_fixture.cluster.get("pods", "--namespace", NAMESPACE, "--selector", "app.kubernetes.io/component=test")[
        "items"
    ]
    return {pod["metadata"]["name"]: pod for pod in found}


@pytest.mark.parametrize("major", [3, 4])
def test_helm_test_passes_and_leaves_no_pods_if_every_pool_has_its_shares(pools: ClusterFixture, major: int) -> None:
    said = Release(pools.cluster, major).helm("test", NAME, "--timeout", "60s")
    assert re.findall(r"TEST SUITE:\s+(\S+)", said) == NAMES
    assert re.findall(r"Phase:\s+(\S+)", said) == ["Succeeded", "Succeeded"]
    pools.cluster.wait(lambda: not found_pods(pools), "its pods are gone")


@pytest.mark.parametrize("major", [3, 4])
def test_helm_test_fails_and_keeps_its_pod_if_a_pool_has_no_shares(pools: ClusterFixture, major: int) -> None:
    node = pools.node("node-2")
    pools.fleet.stop_plugin(node)
    try:
        pools.cluster.wait(lambda: SLICE not in pools.offer("node-2"), "node-2 offers nothing")
        # So long it waits for each pool's pod: that of the other pool is to end well meanwhile, on a slow machine, too.
        done = Release(pools.cluster, major).try_helm("test", NAME, "--timeout", "40s")
        assert done.returncode != 0
        assert dict(re.findall(r"TEST SUITE:\s+(\S+)[^:]*:.*\n.*\nPhase:\s+(\S+)", done.stdout)) == {
            "gpushare-test-notebooks": "Succeeded",
            "gpushare-test-training": "Failed",
        }
        left = found_pods(pools)["gpushare-test-training"]
        [scheduled] = [one for one in left["status"]["conditions"] if one["type"] == "PodScheduled"]
        assert f"Insufficient {SLICE}" in scheduled["message"]
    finally:
        pools.fleet.start_plugin(pools.cluster, node)
    pools.cluster.wait(lambda: pools.offer("node-2") == {SLICE: 28}, "node-2 offers its shares again")
