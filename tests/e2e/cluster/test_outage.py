"""The API server goes away for two minutes: one node is amid a change, on the other a tenant goes over its cap."""

import time

import pytest

from tests.e2e.cluster.cluster_fixture import A100, NEVER, SHARED, ClusterFixture, intent
from tests.e2e.cluster.test_changes import BOTH, SEVEN, SEVENS, THREE, THREES, await_offers, slicing

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
OUTAGE_SECONDS = 120
TENANTS = ("neighbour", "offender")


@pytest.fixture(scope="module")
def pools(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """The first node by turns, with two tenants; the second under MIG, amid a change."""
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="notebooks", node_2="training")
    cluster_fixture.install(intent(notebooks=slicing(4), training=SEVENS))
    await_offers(cluster_fixture, {SHARED: 8}, ("node-1",))
    await_offers(cluster_fixture, {SEVEN: 14}, ("node-2",))
    # Before the change: on a busy machine they may take longer than a call of the driver may.
    cluster_fixture.tenant("neighbour", "node-1", SHARED, "--mib", "1000")
    cluster_fixture.tenant("offender", "node-1", SHARED, "--mib", "1000", "--grow-to", "30000", "--grow-after", NEVER)
    # The runtime knows a container by the status that kubelet sends.
    cluster_fixture.cluster.wait(
        lambda: all(cluster_fixture.phase(name) == "Running" for name in TENANTS), "kubelet has told that both tenants run"
    )
    fake_nvml = cluster_fixture.fake_nvml("node-2")
    fake_nvml.forget_calls()
    fake_nvml.delay(CREATE, 110, times=1)
    cluster_fixture.install(intent(notebooks=slicing(4), training=THREES))
    cluster_fixture.cluster.wait(
        lambda: any(CREATE in call for call in fake_nvml.calls()), "the change has come to its first instance"
    )
    return cluster_fixture


@pytest.mark.failure_case(29)
def test_caps_and_running_changes_continue_without_an_api_server(pools: ClusterFixture) -> None:
    shared, sliced = (pools.node(node) for node in BOTH)
    both, offender = (shared.processes("--mib", "1000", *more) for more in ((), ("--grow-to",)))
    [neighbour] = set(both) - set(offender)
    pools.cluster.control_plane.stop_api_server()
    begun = time.monotonic()
    try:
        pools.fake_nvml(sliced.name).heal()
        instances = pools.fake_nvml(sliced.name).instances
        pools.cluster.wait(lambda: [len(instances(gpu)) for gpu in (0, 1)] == [3, 3], "the layout is made")
        pools.let_grow(shared.name)
        pools.cluster.wait(lambda: not shared.processes("--grow-to"), "the offender is ended")
        # An outage of two minutes: leases and tokens are asked for again meanwhile, and the runtime must end nobody for that.
        time.sleep(max(0.0, OUTAGE_SECONDS - (time.monotonic() - begun)))
        assert shared.processes("--mib") == [neighbour]
    finally:
        pools.cluster.control_plane.start_api_server()
    # Only the pools' resources: kubelet tells once that a former one is gone, five minutes after its plugin, and what an outage
    # swallows stands there for good.
    shares = {"node-2": (THREE, 6), "node-1": (SHARED, 8)}
    pools.cluster.wait(
        lambda: all(pools.offer(node).get(resource) == count for node, (resource, count) in shares.items()),
        "all shares are offered",
    )
    assert [pools.restarts(node) for node in BOTH] == [[0, 0], [0, 0]]


def test_events_of_an_outage_are_reported_afterwards(pools: ClusterFixture) -> None:
    def told(name: str) -> set[str]:
        return {reason for reason, _ in pools.events(name) if reason.startswith("GPU")}

    expected = {"GPUMemoryOverCap", "GPUProcessKilled"}
    # After so many attempts in vain a minute may pass before the next.
    pools.cluster.wait(lambda: told("offender") >= expected, "the offender's Events are there")
    assert told("neighbour") == set()
    pools.cluster.wait(lambda: pools.phase("offender") in {"Succeeded", "Failed"}, "kubelet has told that it ended")
    assert pools.phase("neighbour") == "Running"
    pools.dismiss(*TENANTS)
