"""Shares in use: tenants from the scheduler in real containers; one goes beyond its cap and dies, its neighbours live."""

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import NEVER, NOTEBOOKS, SHARED, SLICE, TRAINING, ClusterFixture, intent
from tests.e2e.cluster.images import TENANT
from tests.e2e.cluster.mps import Daemon

ENDED = ("Failed", "Succeeded")


def test_nodes_advertise_the_planned_resources(pools: ClusterFixture) -> None:
    assert pools.offer("node-1") == {SHARED: 8}
    assert pools.offer("node-2") == {SLICE: 28}
    assert [len(pools.fake_nvml("node-2").instances(gpu)) for gpu in (0, 1)] == [7, 7]
    assert pools.condition("node-1")["status"] == "True"
    assert not pools.taints("node-1") | pools.taints("node-2")
    pools.cluster.wait(lambda: pools.is_ready("node-1") and pools.is_ready("node-2"), "the runtime's pods are Ready")


def die_and_let_live(cluster_fixture: ClusterFixture, node: str, resource: str, device: str, cap_mib: int) -> None:
    """A neighbour within its cap, a platform pod without a share on the same device, and two that are over their caps."""
    within, beyond = str(cap_mib - 200), str(cap_mib + 500)
    grows = ("--mib", within, "--grow-to", beyond, "--grow-after", "2")
    cluster_fixture.tenant("neighbour", node, resource, "--mib", within)
    agent = {"name": "agent", "image": TENANT, "imagePullPolicy": "Never", "args": ["--gpu", device, "--mib", "100"]}
    cluster_fixture.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "agent", "namespace": NAMESPACE},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "runtimeClassName": "nvidia",
                "containers": [agent],
                "restartPolicy": "Never",
                "terminationGracePeriodSeconds": 1,
            },
        }
    )
    cluster_fixture.await_tenant("agent", "ready", where=NAMESPACE)
    # Neither a namespace of the platform nor a priority class is a licence to go beyond one's own share.
    cluster_fixture.tenant("system", node, resource, *grows, where=NAMESPACE, priorityClassName="system-node-critical")
    cluster_fixture.tenant("offender", node, resource, *grows)
    try:
        cluster_fixture.cluster.wait(lambda: cluster_fixture.phase("offender") in ENDED, "the offender is ended")
        cluster_fixture.cluster.wait(
            lambda: cluster_fixture.phase("system", NAMESPACE) in ENDED, "so is the one in a namespace of the platform"
        )
        cluster_fixture.cluster.wait(
            lambda: any(
                f"uses {cap_mib + 500} MiB of" in message and f"its cap of {cap_mib} MiB" in message
                for _, message in cluster_fixture.events("offender")
            ),
            f"an Event on its pod says how much of what: {cluster_fixture.events('offender')}",
        )
        assert cluster_fixture.phase("neighbour") == "Running"
        assert cluster_fixture.phase("agent", NAMESPACE) == "Running"
        assert not cluster_fixture.events("neighbour") or all(
            "MiB" not in message for _, message in cluster_fixture.events("neighbour")
        )
    finally:
        cluster_fixture.dismiss("neighbour", "offender")
        cluster_fixture.dismiss("system", "agent", where=NAMESPACE)


def test_only_the_offender_is_killed_under_time_slicing(pools: ClusterFixture) -> None:
    die_and_let_live(pools, "node-1", SHARED, "0", 3724)


def test_only_the_offender_is_killed_on_shared_mig_instances(pools: ClusterFixture) -> None:
    fake_nvml = pools.fake_nvml("node-2")
    die_and_let_live(pools, "node-2", SLICE, fake_nvml.mig_uuid(0, min(fake_nvml.instances(0))[0]), 2304)


def test_a_request_for_two_shares_is_refused_early(pools: ClusterFixture) -> None:
    container = {"name": "work", "image": TENANT, "resources": {"limits": {SHARED: 2}}}
    with pytest.raises(Exception, match="Write 1"):
        pools.cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": "two", "namespace": "course"},
                "spec": {"containers": [container]},
            }
        )


def test_offender_under_mps_is_evicted_and_its_neighbour_works_on(pools: ClusterFixture) -> None:
    """With a signal alone, work on the GPU could take every client of the server with it."""
    mps = "card: t4, sharing: {mode: mps, replicas: 4}, enforcement: {grace: 2s}"
    pools.install(intent(notebooks=mps, training=TRAINING))
    label = "nvidia.com/device-plugin.config"
    pools.cluster.wait(lambda: pools.labels("node-1")[label].startswith("mps-"), "node-1 is under MPS")
    pools.await_offer("node-1", "notebooks")
    assert pools.offer("node-1") == {SHARED: 8}
    daemon = Daemon(pools, "node-1")
    try:
        pools.tenant("neighbour", "node-1", SHARED, "--mib", "3000", "--kind", "mps")
        pools.tenant(
            "offender",
            "node-1",
            SHARED,
            "--mib",
            "3000",
            "--kind",
            "mps",
            "--grow-to",
            "4300",
            "--grow-after",
            NEVER,
            "--on-term",
            "ignore",
        )
        # Not before both run.
        pools.let_grow("node-1")
        pools.cluster.wait(
            lambda: any(reason == "GPUPodEvicted" for reason, _ in pools.events("offender")), "the offender is evicted"
        )
        assert pools.phase("neighbour") == "Running"
        assert daemon.serves()
        told = "uses 4300 MiB of"
        pools.cluster.wait(lambda: any(told in message for _, message in pools.events("offender")), "an Event says so")
    finally:
        pools.dismiss("neighbour", "offender")


@pytest.mark.failure_case(76)
def test_node_with_a_running_mps_server_changes_its_mode(pools: ClusterFixture) -> None:
    """The server outlives its clients; its daemon ends it only when the label is another."""
    fake_nvml, label = pools.fake_nvml("node-1"), "nvidia.com/device-plugin.config"
    assert fake_nvml.compute_mode(0) == 3
    with Daemon(pools, "node-1").held():
        pools.install(intent(notebooks=NOTEBOOKS, training=TRAINING))
        pools.cluster.wait(lambda: not pools.labels("node-1")[label].startswith("mps-"), "the label goes first")
        assert "gpushare.dev/repartitioning" in pools.taints("node-1")
        assert fake_nvml.compute_mode(0) == 3
    pools.await_offer("node-1", "notebooks")
    assert fake_nvml.compute_mode(0) == 0
    assert pools.offer("node-1") == {SHARED: 8}
