"""The intent changes, and nodes follow: at its pace, around tenants that are in the way, and back where they must."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.cluster.cluster_fixture import A100, COURSE, NEVER, ClusterFixture, intent, offer_of, taints_of
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.machine import PATIENCE

BOTH = ("node-1", "node-2")
SEVEN, THREE, SHARED = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/gpu.shared"


def mig(layout: str, more: str = "") -> str:
    """A pool of A100s under MIG."""
    return f"card: a100-sxm4-40gb, sharing: {{mode: mig, layout: {layout}}}, enforcement: {{grace: 2s}}{more}"


def slicing(replicas: int, more: str = "") -> str:
    """A pool of A100s by slots."""
    return f"card: a100-sxm4-40gb, sharing: {{mode: time-slicing, replicas: {replicas}}}, enforcement: {{grace: 2s}}{more}"


SEVENS, THREES = mig("{1g.5gb: 7}"), mig("{2g.10gb: 3}")


@pytest.fixture(scope="module")
def pool(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """Both nodes in one pool, of seven instances a GPU."""
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="training", node_2="training")
    cluster_fixture.install(intent(training=SEVENS))
    for node in BOTH:
        cluster_fixture.await_offer(node, "training")
    return cluster_fixture


def bring(cluster_fixture: ClusterFixture, offer: dict[str, int], fields: str, nodes: tuple[str, ...] = BOTH) -> None:
    """Install, and wait until the nodes offer it."""
    cluster_fixture.install(intent(training=fields))
    await_offers(cluster_fixture, offer, nodes)


def await_offers(
    cluster_fixture: ClusterFixture, offer: dict[str, int], nodes: tuple[str, ...] = BOTH, seconds: float = PATIENCE
) -> None:
    """Until the nodes offer exactly this, and are ready."""
    for node in nodes:
        cluster_fixture.cluster.wait(
            lambda node=node: cluster_fixture.offer(node) == offer,
            f"{node} offers {offer}: {cluster_fixture.condition(node)}",
            seconds,
        )
        cluster_fixture.await_reason(node, "Ready")
        cluster_fixture.cluster.wait(lambda node=node: not cluster_fixture.taints(node), f"{node} has no taint")


def sleeper(cluster_fixture: ClusterFixture, name: str, node: str, resource: str) -> None:
    """A pod that has a share and does nothing with it."""
    container = {"name": "work", "image": PAUSE, "imagePullPolicy": "Never", "resources": {"limits": {resource: 1}}}
    cluster_fixture.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": COURSE},
            "spec": {
                "nodeSelector": {"kubernetes.io/hostname": node},
                "containers": [container],
                "terminationGracePeriodSeconds": 1,
            },
        }
    )
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase(name) == "Running", f"{name} runs")


def test_new_layout_is_rolled_out_node_by_node(pool: ClusterFixture) -> None:
    offers = ({SEVEN: 14}, {THREE: 6})
    pool.install(intent(training=THREES))
    out = 0

    def is_done() -> bool:
        nonlocal out
        # At one moment: between two reads one node may end its change, and the other begin.
        states = [*pool.states().values()]
        out = max(out, sum(offer_of(node) not in offers or bool(taints_of(node)) for node in states))
        return [offer_of(node) for node in states] == [{THREE: 6}] * 2

    pool.cluster.wait(is_done, "both nodes offer the new layout")
    assert out == 1
    await_offers(pool, {THREE: 6})
    pool.cluster.wait(lambda: not pool.slots(), "all slots are given back")


def test_new_cap_changes_no_labels(pool: ClusterFixture) -> None:
    bring(pool, {SHARED: 8}, slicing(4))
    before = [pool.labels(node) for node in BOTH]
    pool.install(intent(training=slicing(4, ", memory: {cap: 4Gi}")))
    for node in BOTH:
        policy = pool.node(node).path("/var/lib/gpushare/policy.json")
        pool.cluster.wait(lambda policy=policy: "capMiB: 4096" in policy.read_text(), f"{node} has the new cap")
    assert [pool.labels(node) for node in BOTH] == before
    assert all(pool.offer(node) == {SHARED: 8} for node in BOTH)


def test_more_replicas_are_rolled_out(pool: ClusterFixture) -> None:
    bring(pool, {SHARED: 16}, slicing(8))


def test_sleeping_pod_is_waited_for_and_caps_are_enforced_meanwhile(pool: ClusterFixture) -> None:
    """At 8 shares the cap is 4,861 MiB of 40 GiB; the former cap holds while the node waits."""
    sleeper(pool, "asleep", "node-1", SHARED)
    pool.tenant("offender", "node-1", SHARED, "--mib", "100", "--grow-to", "9000", "--grow-after", NEVER)
    try:
        pool.install(intent(training=SEVENS))
        said = pool.await_reason("node-1", "GPUBusy")
        assert "asleep" in said["message"]
        pool.let_grow("node-1")
        pool.await_tenant("offender", "grown")
        pool.cluster.wait(lambda: pool.phase("offender") != "Running", "the former cap is held")
        assert pool.offer("node-1") == {SHARED: 16}
    finally:
        pool.dismiss("asleep", "offender")
    await_offers(pool, {SEVEN: 14})


def test_evict_moves_tenants_away(pool: ClusterFixture) -> None:
    sleeper(pool, "asleep", "node-2", SEVEN)
    bring(pool, {SHARED: 8}, slicing(4, ", rollout: {onBusy: evict}"))
    pool.cluster.wait(lambda: pool.phase("asleep") == "Gone", "the pod is gone")


def test_on_busy_fail_keeps_the_previous_layout_and_is_reported(pool: ClusterFixture) -> None:
    sleeper(pool, "asleep", "node-1", SHARED)
    try:
        pool.install(intent(training=mig("{1g.5gb: 7}", ", rollout: {onBusy: fail}")))
        pool.await_reason("node-1", "GPUBusy")
        pool.cluster.wait(lambda: not pool.taints("node-1"), "no taint stays")
        assert pool.offer("node-1") == {SHARED: 8}
    finally:
        pool.dismiss("asleep")


def test_change_waits_for_a_window_and_begins_when_the_policy_opens_it(pool: ClusterFixture) -> None:
    bring(pool, {SHARED: 8}, slicing(4))
    day = f"{datetime.now(UTC) + timedelta(days=3):%a}"
    pool.install(
        intent(training=mig("{1g.5gb: 7}", f', rollout: {{windows: [{{days: [{day}], start: "00:00", duration: 2h}}]}}'))
    )
    for node in BOTH:
        assert f"opens {day} " in pool.await_reason(node, "WaitingForWindow")["message"]
        assert (pool.offer(node), pool.taints(node)) == ({SHARED: 8}, set())
    assert not pool.slots()
    bring(pool, {SEVEN: 14}, SEVENS)


def test_failing_node_stops_the_rollout_and_reports_why(pool: ClusterFixture) -> None:
    bring(pool, {SEVEN: 14}, SEVENS)
    for node in BOTH:
        pool.fake_nvml(node).fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)
    pool.install(intent(training=THREES))

    def failed() -> list[str]:
        return [node for node in BOTH if pool.condition(node)["reason"] in ("RolledBack", "PartitionFailed")]

    [bad] = pool.cluster.wait(failed, "a node fails")
    [good] = set(BOTH) - {bad}
    described = pool.cluster.kubectl("describe", "node", bad)
    assert "GPUShareReady" in described
    assert "2g.10gb" in described, described
    assert pool.slots()[0] == bad
    assert pool.offer(good) == {SEVEN: 14}
    assert pool.condition(good)["reason"] in ("Ready", "WaitingForTurn")
    assert len(pool.fake_nvml(good).instances(0)) == 7
    for node in BOTH:
        pool.fake_nvml(node).heal()
    # The way out is the former intent; the slot must not be kept then.
    bring(pool, {SEVEN: 14}, SEVENS)
    pool.cluster.wait(lambda: not pool.slots(), "the slot is given back")
    bring(pool, {THREE: 6}, THREES)


def test_externally_changed_hardware_is_repaired_and_reenumerated(pool: ClusterFixture) -> None:
    before = pool.labels("node-1")["nvidia.com/device-plugin.config"]
    fake_nvml = pool.fake_nvml("node-1")
    fake_nvml.set_mode(0, False)
    pool.cluster.wait(lambda: len(fake_nvml.instances(0)) == 3, "the layout is made again")
    pool.cluster.wait(lambda: pool.labels("node-1")["nvidia.com/device-plugin.config"] != before, "the label is flipped")
    after = pool.labels("node-1")["nvidia.com/device-plugin.config"]
    assert (before[:-2], {before[-2:], after[-2:]}) == (after[:-2], {"-a", "-b"})
    await_offers(pool, {THREE: 6})


def test_a_renamed_pool_takes_its_nodes_as_they_are(pool: ClusterFixture) -> None:
    pool.fake_nvml("node-1").forget_calls()
    text = intent(training=THREES).replace("    training: {", "    learning: {")
    pool.install(text)
    for node in BOTH:
        pool.await_offer(node, "learning")
    assert pool.offer("node-1") == {THREE: 6}
    assert pool.fake_nvml("node-1").calls() == []


def test_a_node_moves_to_a_pool_that_is_new(pool: ClusterFixture) -> None:
    pool.install(intent(training=THREES, notebooks=slicing(4)))
    pool.choose(node_1="notebooks")
    pool.await_offer("node-1", "notebooks")
    assert pool.offer("node-1") == {SHARED: 8}
    pool.await_offer("node-2", "training")
    assert pool.offer("node-2") == {THREE: 6}


def test_nodes_of_a_deleted_pool_become_exclusive(pool: ClusterFixture) -> None:
    pool.install(intent(notebooks=slicing(4)))
    pool.cluster.wait(lambda: "gpushare.dev/pool" not in pool.labels("node-2"), "node-2 is released")
    pool.cluster.wait(lambda: pool.offer("node-2") == {"nvidia.com/gpu": 2}, "it offers whole GPUs")
    assert not pool.fake_nvml("node-2").mode(0)[0]
    assert not [trace for trace in pool.traces() if trace.startswith("node-2")]


def test_start_up_taint_is_removed_when_the_node_is_ready(pool: ClusterFixture) -> None:
    pool.cluster.kubectl("taint", "node", "node-2", "gpushare.dev/not-ready=:NoSchedule")
    pool.choose(node_2="notebooks")
    pool.await_offer("node-2", "notebooks")
    assert pool.offer("node-2") == {SHARED: 8}
