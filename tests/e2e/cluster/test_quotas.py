"""Quotas of an intent, in shares and in memory, against real pods: those within run, the one beyond is refused and told why."""

import json

import pytest

from tests.e2e.cluster.bundles import namespace
from tests.e2e.cluster.cluster_fixture import A100, COURSE, NOTEBOOKS, SHARED, SLICE, T4, TRAINING, ClusterFixture, intent
from tests.e2e.cluster.images import TENANT

PHYSICS = "physics"

# A share of `training` is 2304 MiB, so two fit into 5 GiB, and a third does not.
QUOTAS = f"""  quotas:
    {COURSE}: {{notebooks: 2}}
    {PHYSICS}: {{training: {{memory: 5Gi}}}}
"""

WAYS = [(COURSE, "node-1", SHARED), (PHYSICS, "node-2", SLICE)]


@pytest.fixture(scope="module")
def pools(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """Two pools, and a namespace with a quota on each of them."""
    namespace(cluster_fixture.cluster, PHYSICS)
    cluster_fixture.equip("node-1", T4)
    cluster_fixture.equip("node-2", A100)
    cluster_fixture.choose(node_1="notebooks", node_2="training")
    cluster_fixture.install(intent(notebooks=NOTEBOOKS, training=TRAINING) + QUOTAS)
    cluster_fixture.await_offer("node-1", "notebooks")
    cluster_fixture.await_offer("node-2", "training")
    return cluster_fixture


@pytest.mark.parametrize(("where", "node", "resource"), WAYS, ids=["in shares", "in memory"])
def test_pods_within_the_quota_run_and_the_one_beyond_is_refused_by_name(
    pools: ClusterFixture, where: str, node: str, resource: str
) -> None:
    try:
        for name in ("first", "second"):
            pools.tenant(name, node, resource, "--mib", "100", where=where)
        said = refusal(pools, "third", where, resource)
        assert "exceeded quota: gpushare" in said
        assert f"requests.{resource}=2" in said
        assert pools.phase("third", where) == "Gone"
        assert refusal(pools, "elsewhere", "default", resource) == ""
        # Who gives a share back may have another.
        pools.dismiss("first", where=where)
        pools.cluster.wait(lambda: not refusal(pools, "third", where, resource), "the quota has room again")
        pools.tenant("third", node, resource, "--mib", "100", where=where)
        assert pools.phase("second", where) == "Running"
    finally:
        pools.dismiss("first", "second", "third", where=where)


def refusal(cluster_fixture: ClusterFixture, name: str, where: str, resource: str) -> str:
    """What the API server says against such a pod; empty if nothing."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": where},
        "spec": {"containers": [{"name": "work", "image": TENANT, "resources": {"limits": {resource: 1}}}]},
    }
    done = cluster_fixture.cluster.try_kubectl("create", "--dry-run=server", "--filename", "-", stdin=json.dumps(pod))
    return done.stderr if done.returncode else ""
