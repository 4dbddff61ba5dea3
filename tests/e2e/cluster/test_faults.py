"""What goes wrong around the runtime, and that each time it ends as wanted, or with a reason that names the way out."""

from collections.abc import Mapping

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import A100, SHARED, ClusterFixture, intent
from tests.e2e.cluster.node import GPU_CLIENTS
from tests.e2e.cluster.test_changes import BOTH, SEVEN, THREE, await_offers, bring, mig, sleeper, slicing

CONFIG = "nvidia.com/device-plugin.config"
QUICK = ", rollout: {maxUnavailable: 2}"


@pytest.fixture(scope="module")
def pool(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """Both nodes in one pool, of four shares a GPU, both of which may be changed at once."""
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="training", node_2="training")
    bring(cluster_fixture, {SHARED: 8}, slicing(4, QUICK))
    return cluster_fixture


def test_runtime_killed_during_a_partition_finishes_it(pool: ClusterFixture) -> None:
    """On one node right after a step, on the other right before one."""
    pool.fake_nvml("node-1").kill_after(3)
    pool.fake_nvml("node-2").kill_before(7)
    pool.install(intent(training=mig("{1g.5gb: 7}", QUICK)))
    await_offers(pool, {SEVEN: 14})
    for node in BOTH:
        pool.cluster.wait(lambda node=node: pool.restarts(node) == [1, 0], "kubelet has started it again, once")


def without_side(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels, with the plugin's profile without which of its two names it has."""
    return {name: value[:-2] if name == CONFIG else value for name, value in labels.items()}


def test_kubelet_restart_keeps_shares_and_tenants(pool: ClusterFixture) -> None:
    node = pool.node("node-1")
    pool.tenant("tenant", "node-1", SEVEN, "--mib", "1000")
    try:
        before = pool.labels("node-1")
        node.stop_kubelet()
        said = heartbeat(pool)
        node.start_kubelet()
        # Until then all is as the former one has told.
        pool.cluster.wait(lambda: heartbeat(pool) != said, "the new kubelet has told of the node")
        pool.cluster.wait(lambda: pool.offer("node-1") == {SEVEN: 14}, "the shares are offered again")
        pool.cluster.wait(lambda: pool.is_ready("node-1"), "the runtime is Ready")
        pool.await_reason("node-1", "Ready")
        # On a slow machine the plugin is back so late that the runtime has published the profile under its other name.
        assert without_side(pool.labels("node-1")) == without_side(before)
        assert pool.phase("tenant") == "Running"
    finally:
        pool.dismiss("tenant")


def heartbeat(cluster_fixture: ClusterFixture) -> str:
    """When kubelet has last told that node-1 is ready."""
    conditions = cluster_fixture.state("node-1")["status"]["conditions"]
    return next(str(one["lastHeartbeatTime"]) for one in conditions if one["type"] == "Ready")


def test_label_claiming_the_node_for_another_pool_is_corrected(pool: ClusterFixture) -> None:
    """Both pools' pods are on the node then: nobody may partition twice, and the pool that selects the node keeps it."""
    pool.install(intent(training=mig("{2g.10gb: 3}", QUICK), notebooks=slicing(4)))
    await_offers(pool, {THREE: 6})
    pool.fake_nvml("node-1").forget_calls()
    pool.cluster.kubectl("label", "node", "node-1", "gpushare.dev/pool=notebooks", "--overwrite")
    pool.await_offer("node-1", "training")
    await_offers(pool, {THREE: 6}, ("node-1",))
    assert pool.fake_nvml("node-1").calls() == []
    pool.cluster.wait(lambda: len(pool.runtime_pods("node-1")) == 1, "the other pool's pod ends")


def test_foreign_label_manager_is_reported_and_the_label_restored(pool: ClusterFixture) -> None:
    before = pool.labels("node-2")[CONFIG]
    pool.cluster.kubectl("label", "node", "node-2", f"{CONFIG}=theirs", "--overwrite", "--field-manager=their-tool")
    said = pool.await_reason("node-2", "LabelConflict")
    assert "their-tool" in said["message"]
    pool.cluster.wait(lambda: pool.labels("node-2")[CONFIG] == before, "the label is put right")


def test_a_profile_that_the_plugin_does_not_see_yet_is_waited_for(pool: ClusterFixture) -> None:
    """Kubelet projects a ConfigMap's change a minute late; the label flips at once. Here the change comes late itself."""
    bundle = pool.compile(intent(training=slicing(6, QUICK)))
    profiles = (bundle / "chart" / "files" / "profiles").glob("time-slicing-*.yaml")
    [new] = [path for path in profiles if path.stem not in _keys(pool)]
    late = new.rename(bundle / new.name)
    pool.release.install(bundle)
    pool.await_reason("node-1", "WaitingForPlugin")
    assert "gpushare.dev/repartitioning" in pool.taints("node-1")
    late.rename(new)
    pool.release.install(bundle)
    await_offers(pool, {SHARED: 12})


def _keys(cluster_fixture: ClusterFixture) -> list[str]:
    data = cluster_fixture.cluster.get("configmap", "gpushare-profiles", "--namespace", NAMESPACE)["data"]
    return [key.removesuffix("-a") for key in data]


@pytest.mark.failure_case(95)
def test_driver_upgrade_during_a_change_waits_for_the_runtime(pool: ClusterFixture) -> None:
    """k8s-driver-manager waits for pods of DaemonSets with a key in `nodeSelector`, whose label it has paused before."""

    def clients() -> list[str]:
        found = pool.cluster.read("/api/v1/pods", fieldSelector="spec.nodeName=node-1")["items"]
        owners = {one["metadata"]["name"]: one["metadata"].get("ownerReferences", ()) for one in found}
        return [
            one["metadata"]["name"]
            for one in found
            if GPU_CLIENTS in one["spec"].get("nodeSelector", {})
            and any(owner["kind"] == "DaemonSet" for owner in owners[one["metadata"]["name"]])
        ]

    def label(value: str) -> None:
        pool.cluster.kubectl("label", "node", "node-1", f"{GPU_CLIENTS}={value}", "--overwrite")

    pool.cluster.wait(lambda: len(clients()) == 1, "the former runtime's pod has ended")
    sleeper(pool, "asleep", "node-1", SHARED)
    pool.install(intent(training=mig("{1g.5gb: 7}", QUICK)))
    pool.await_reason("node-1", "GPUBusy")
    fake_nvml = pool.fake_nvml("node-1")
    fake_nvml.forget_calls()
    fake_nvml.delay("nvmlDeviceCreateGpuInstanceWithPlacement", 0.5)
    pool.dismiss("asleep")
    pool.cluster.wait(lambda: "CreateGpuInstance" in str(fake_nvml.calls()), "the change has begun")
    label("paused-for-driver-upgrade")
    pool.cluster.wait(lambda: not clients(), "the driver can be unloaded")
    fake_nvml.heal()
    label("true")
    await_offers(pool, {SEVEN: 14})


def test_no_runtime_was_restarted_without_a_reason(pool: ClusterFixture) -> None:
    for node in BOTH:
        pod = pool.pod_of(node)
        assert pod is not None
        assert [one["restartCount"] for one in pod["status"]["containerStatuses"]] == [0]
