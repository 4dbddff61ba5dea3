"""Nodes boot: GPU instances are gone, on Hopper the MIG mode too. They come back to the wanted layout by themselves."""

import pytest

from tests.e2e.cluster.cluster_fixture import A100, ClusterFixture, intent
from tests.e2e.cluster.test_changes import BOTH, await_offers, mig, sleeper

H100 = ("h100-sxm5-80gb", "h100-sxm5-80gb")
CREATE, SWITCH = "nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlDeviceSetMigMode"

THREES = {"hopper": "{3g.40gb: 2}", "ampere": "{3g.20gb: 2}"}
TWOS = {"hopper": "{2g.20gb: 3}", "ampere": "{2g.10gb: 3}"}
OF_THREES = ({"nvidia.com/mig-3g.40gb": 4}, {"nvidia.com/mig-3g.20gb": 4})
OF_TWOS = ({"nvidia.com/mig-2g.20gb": 6}, {"nvidia.com/mig-2g.10gb": 6})


def layouts(of: dict[str, str]) -> str:
    """The intent of both pools."""
    return intent(hopper=mig(of["hopper"]).replace("a100-sxm4-40gb", "h100-sxm5-80gb"), ampere=mig(of["ampere"]))


def await_both(cluster_fixture: ClusterFixture, offers: tuple[dict[str, int], dict[str, int]]) -> None:
    """Until each node offers its own, and its runtime runs."""
    for node, offer in zip(BOTH, offers, strict=True):
        await_offers(cluster_fixture, offer, (node,))
        # The condition and the pod's state may be those from before.
        cluster_fixture.cluster.wait(lambda node=node: cluster_fixture.is_ready(node), f"the runtime on {node} is Ready")


@pytest.fixture(scope="module")
def pools(cluster_fixture: ClusterFixture) -> ClusterFixture:
    """The first node has H100s, the second A100s."""
    cluster_fixture.equip("node-1", H100)
    cluster_fixture.equip("node-2", A100)
    cluster_fixture.choose(node_1="hopper", node_2="ampere")
    cluster_fixture.install(layouts(THREES))
    await_both(cluster_fixture, OF_THREES)
    return cluster_fixture


def switches(cluster_fixture: ClusterFixture, node: str) -> list[str]:
    """The calls that change MIG modes, since the log was begun."""
    return [call for call in cluster_fixture.fake_nvml(node).calls() if call.startswith(SWITCH)]


def test_layout_lost_in_a_reboot_is_restored(pools: ClusterFixture) -> None:
    for node in BOTH:
        pools.fake_nvml(node).forget_calls()
        pools.reboot(node)
    for node in BOTH:
        is_there = pools.fake_nvml(node).instances
        pools.cluster.wait(lambda is_there=is_there: len(is_there(1)) == 2, f"{node} has its instances again")
    await_both(pools, OF_THREES)
    assert [len(switches(pools, node)) for node in BOTH] == [2, 0]


def test_tenants_from_before_a_reboot_do_not_block_restoring_the_layout(pools: ClusterFixture) -> None:
    """Kubelet remembers which devices it gave them. The devices are gone, and so is what they were given."""
    for node, offer in zip(BOTH, OF_THREES, strict=True):
        sleeper(pools, f"tenant-{node}", node, next(iter(offer)))
    try:
        for node in BOTH:
            pools.reboot(node)
            is_there = pools.fake_nvml(node).instances
            pools.cluster.wait(lambda is_there=is_there: len(is_there(1)) == 2, f"{node} has its instances again")
        await_both(pools, OF_THREES)
    finally:
        pools.dismiss(*(f"tenant-{node}" for node in BOTH))


def test_reboot_during_a_change_ends_in_the_new_layout(pools: ClusterFixture) -> None:
    """The second GPU has one of its new instances and waits for the next, and the former ones are gone."""
    for node in BOTH:
        pools.fake_nvml(node).forget_calls()
        pools.fake_nvml(node).delay(CREATE, 110, times=1, after=1, gpu=1)
    pools.install(layouts(TWOS))
    for node in BOTH:
        fake_nvml = pools.fake_nvml(node)
        pools.cluster.wait(lambda calls=fake_nvml.calls: str(calls()).count(CREATE) == 5, f"{node} is amid its change")
        assert [len(fake_nvml.instances(gpu)) for gpu in (0, 1)] == [3, 1]
        pools.reboot(node)
    await_both(pools, OF_TWOS)
    assert not pools.slots()
    assert [pools.condition(node)["reason"] for node in BOTH] == ["Ready", "Ready"]
