"""Pools of the DRA driver from intent to pod: every mode, with claims and limits; who goes beyond a cap ends alone."""

import sys
from collections.abc import Iterator

import pytest

from tests.e2e.cluster.cluster_fixture import A100, COURSE, KEPT, NEVER, T4, ClusterFixture
from tests.e2e.cluster.dra.agents import BACK_END, Agents, dra_intent, with_agents
from tests.e2e.cluster.dra.objects import tenant
from tests.e2e.cluster.test_dra_driver import NONE, scheduled

SLICED, OTHER = "node-1", "node-2"
NOTEBOOKS = "card: t4, sharing: {mode: time-slicing, replicas: 4}, sizes: {large: 7680Mi}"
COUNTED = "card: t4, sharing: {mode: time-slicing, replicas: 4}, requests: limits"
EXCLUSIVE = "card: a100-sxm4-40gb, requests: both, sharing: {mode: exclusive}"
INSTANCES = "card: a100-sxm4-40gb, requests: both, sharing: {mode: mig, layout: {3g.20gb: 1, 1g.5gb: 3}}"
HALVES = "card: a100-sxm4-40gb, sharing: {mode: mig, layout: {3g.20gb: 2}, replicas: {3g.20gb: 2}}"
SHARE, LARGE = "gpushare-notebooks.share", "gpushare-notebooks.large"
CAP = 3724
"""MiB of a quarter of a T4, less the reserve: as with the device plugin."""


@pytest.fixture(scope="module")
def agents(cluster_fixture: ClusterFixture) -> Iterator[Agents]:
    """Two nodes that the device plugin serves and the driver is to serve."""
    cluster_fixture.equip(SLICED, T4)
    cluster_fixture.equip(OTHER, A100)
    with with_agents(cluster_fixture) as made:
        cluster_fixture.choose(node_1="notebooks", node_2="training")
        yield made


def install(
    agents: Agents, cluster_fixture: ClusterFixture, training: str, notebooks: str = NOTEBOOKS, shares: str = "memory"
) -> None:
    """Install both pools, and wait until their nodes are ready with it."""
    agents.install(dra_intent(shares, notebooks=notebooks, training=training))
    for node, pool in ((SLICED, "notebooks"), (OTHER, "training")):
        cluster_fixture.await_policy(node, pool)


def start(cluster_fixture: ClusterFixture, name: str, template: str, *arguments: str) -> None:
    """A tenant with a claim, that has its memory."""
    cluster_fixture.cluster.apply(tenant(name, template, *arguments))
    cluster_fixture.await_tenant(name, "ready")


def finds_nothing(cluster_fixture: ClusterFixture, name: str, template: str) -> bool:
    """Whether there is no device for another claim."""
    cluster_fixture.cluster.apply(tenant(name, template, "--mib", "1"))
    cluster_fixture.cluster.wait(lambda: scheduled(cluster_fixture, name), f"the scheduler says something of {name}")
    said = scheduled(cluster_fixture, name)
    cluster_fixture.dismiss(name)
    return NONE in said


def await_end(cluster_fixture: ClusterFixture, name: str, used: int, cap: int) -> None:
    """Until the pod is ended, and an Event on it says of what."""
    cluster_fixture.cluster.wait(lambda: cluster_fixture.phase(name) in ("Failed", "Succeeded"), f"{name} is ended")
    told = (f"uses {used} MiB of", f"its cap of {cap} MiB")
    cluster_fixture.cluster.wait(
        lambda: any(all(part in message for part in told) for _, message in cluster_fixture.events(name)),
        f"an Event on {name} says {told}: {cluster_fixture.events(name)}",
    )


def uuids(agents: Agents, node: str) -> set[str]:
    """Those of the devices that the driver offers."""
    return {str(one["attributes"]["uuid"]["string"]) for one in agents.devices(node).values()}


def instances(cluster_fixture: ClusterFixture, node: str) -> set[str]:
    """The UUIDs of all MIG devices of the node."""
    fake_nvml = cluster_fixture.fake_nvml(node)
    return {fake_nvml.mig_uuid(gpu, gi) for gpu in (0, 1) for gi, *_ in fake_nvml.instances(gpu)}


def test_nodes_are_handed_to_the_driver(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    install(agents, cluster_fixture, EXCLUSIVE)
    for node in (SLICED, OTHER):
        assert cluster_fixture.labels(node)[BACK_END] == "dra"
        assert cluster_fixture.offer(node) == {}
        assert uuids(agents, node) == {cluster_fixture.fake_nvml(node).uuid(gpu) for gpu in (0, 1)}


def test_claim_beyond_its_part_of_the_memory_ends_alone(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """The cap grows with what a claim asks for: one of half the GPU may use two shares' memory."""
    start(cluster_fixture, "neighbour", SHARE, "--mib", str(CAP - 100))
    start(cluster_fixture, "offender", SHARE, "--mib", str(CAP - 100), "--grow-to", str(CAP + 500), "--grow-after", "2")
    start(cluster_fixture, "large", LARGE, "--mib", str(2 * CAP - 100))
    await_end(cluster_fixture, "offender", CAP + 500, CAP)
    start(cluster_fixture, "larger", LARGE, "--mib", str(2 * CAP + 200))
    await_end(cluster_fixture, "larger", 2 * CAP + 200, 2 * CAP)
    assert [cluster_fixture.phase(name) for name in ("neighbour", "large")] == ["Running", "Running"]
    cluster_fixture.dismiss("neighbour", "offender", "large", "larger")


def test_node_takes_as_many_claims_as_its_memory_has_room_for(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    names = [f"share-{number}" for number in range(6)]
    for name in names:
        start(cluster_fixture, name, SHARE, "--mib", "1000")
    start(cluster_fixture, "large", LARGE, "--mib", "1000")
    assert finds_nothing(cluster_fixture, "late", SHARE)
    cluster_fixture.dismiss(*names, "large")


def test_import_leaves_out_the_nodes_of_the_driver_and_says_so(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """From the cluster and from its printed objects, also while pods have claims of every size."""
    for node, product in ((SLICED, "Tesla-T4"), (OTHER, "NVIDIA-A100-SXM4-40GB")):
        found = (f"nvidia.com/gpu.product={product}", "nvidia.com/gpu.count=2")
        cluster_fixture.cluster.kubectl("label", "node", node, *found)
    start(cluster_fixture, "share", SHARE, "--mib", "1000")
    start(cluster_fixture, "large", LARGE, "--mib", "1000")
    kinds = "nodes,configmaps,resourcequotas,deviceclasses,resourceclaimtemplates,resourceclaims"
    gpushare = f"{sys.executable} -m gpushare"
    for command in (f"{gpushare} import --live", f"kubectl get {kinds} -A -o json | {gpushare} import -"):
        done = cluster_fixture.shell(command)
        assert "could not read" not in done.stderr
        assert (done.returncode, done.stdout) == (1, "")
        for node in (SLICED, OTHER):
            assert f"warning GS872: node {node} has gpushare.dev/backend: dra: left out" in done.stderr
    cluster_fixture.dismiss("share", "large")
    cluster_fixture.cluster.kubectl("label", "node", "--all", "nvidia.com/gpu.product-", "nvidia.com/gpu.count-")


def test_claims_of_another_size_replace_the_former_ones(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """The specification of a ResourceClaimTemplate cannot be changed."""
    install(agents, cluster_fixture, EXCLUSIVE, NOTEBOOKS.replace("replicas: 4", "replicas: 2"))
    start(cluster_fixture, "half", SHARE, "--mib", "7000")
    start(cluster_fixture, "other-half", SHARE, "--mib", "7000")
    cluster_fixture.dismiss("half", "other-half")
    install(agents, cluster_fixture, EXCLUSIVE)


def test_whole_gpu_is_claimed_or_named_in_limits_once(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    start(cluster_fixture, "claims", "gpushare-training.gpu", "--mib", "39000")
    cluster_fixture.tenant("limits", OTHER, "nvidia.com/gpu", "--mib", "39000")
    assert finds_nothing(cluster_fixture, "late", "gpushare-training.gpu")
    assert sorted(len(gpu["processes"]) for gpu in cluster_fixture.fake_nvml(OTHER).show()) == [1, 1]


def test_new_layout_waits_for_claims_and_is_made_without_the_driver(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    agents.install(dra_intent(notebooks=NOTEBOOKS, training=INSTANCES))
    assert f"{COURSE}/claims" in cluster_fixture.await_reason(OTHER, "GPUBusy")["message"]
    assert (cluster_fixture.labels(OTHER)[BACK_END], cluster_fixture.phase("claims")) == ("dra", "Running")
    cluster_fixture.dismiss("claims", "limits")

    def is_done() -> bool:
        made = instances(cluster_fixture, OTHER)
        offered = {uuid for uuid in uuids(agents, OTHER) if uuid.startswith("MIG-")}
        assert offered <= made | instances(cluster_fixture, OTHER), "no instance is offered that is not there"
        return len(offered) == 8

    cluster_fixture.cluster.wait(is_done, "the driver offers the instances")
    cluster_fixture.await_policy(OTHER, "training")
    start(cluster_fixture, "claims", "gpushare-training.3g.20gb", "--mib", "19000")
    for number in range(6):
        cluster_fixture.tenant(f"limits-{number}", OTHER, "nvidia.com/mig-1g.5gb", "--mib", "4000")
    assert finds_nothing(cluster_fixture, "late", "gpushare-training.1g.5gb")
    cluster_fixture.dismiss("claims", *(f"limits-{number}" for number in range(6)))


def test_instance_is_shared_by_claims_with_caps(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    """Together the two tenants fit into the instance: of a list with more than there is the guard believes nothing."""
    install(agents, cluster_fixture, HALVES)
    half = "gpushare-training.3g.20gb-share"
    for number in range(7):
        start(cluster_fixture, f"half-{number}", half, "--mib", "9000")
    grows = ("--mib", "9000", "--grow-to", "10500", "--grow-after", NEVER)
    start(cluster_fixture, "offender", half, *grows)
    assert finds_nothing(cluster_fixture, "late", half)
    cluster_fixture.let_grow(OTHER)
    await_end(cluster_fixture, "offender", 10500, 9684)
    assert {cluster_fixture.phase(f"half-{number}") for number in range(7)} == {"Running"}
    cluster_fixture.dismiss("offender", *(f"half-{number}" for number in range(7)))


def test_counted_shares_are_named_in_limits(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    install(agents, cluster_fixture, EXCLUSIVE.replace("requests: both, ", ""), COUNTED, "count")
    shared = "nvidia.com/gpu.shared"
    for number in range(7):
        cluster_fixture.tenant(f"share-{number}", SLICED, shared, "--mib", "3000")
    cluster_fixture.tenant("offender", SLICED, shared, "--mib", "3000", "--grow-to", "4300", "--grow-after", NEVER)
    cluster_fixture.start("late", SLICED, shared, "--mib", "1")
    cluster_fixture.cluster.wait(lambda: NONE in scheduled(cluster_fixture, "late"), "there are eight shares")
    cluster_fixture.let_grow(SLICED)
    await_end(cluster_fixture, "offender", 4300, CAP)
    cluster_fixture.await_tenant("late", "ready")
    assert {cluster_fixture.phase(f"share-{number}") for number in range(7)} == {"Running"}
    start(cluster_fixture, "whole", "gpushare-training.gpu", "--mib", "39000")
    cluster_fixture.dismiss("offender", "late", "whole", *(f"share-{number}" for number in range(7)))


def test_uninstallation_gives_the_nodes_back_to_the_plugin(cluster_fixture: ClusterFixture, agents: Agents) -> None:
    cluster_fixture.release.uninstall()
    cluster_fixture.await_no_trace(KEPT)
    for node in (SLICED, OTHER):
        cluster_fixture.cluster.wait(
            lambda node=node: cluster_fixture.offer(node) == {"nvidia.com/gpu": 2}, f"the device plugin serves {node}"
        )
        assert not agents.slices(node)
    left = cluster_fixture.cluster.get("deviceclasses,resourceclaimtemplates,resourceclaims", "--all-namespaces")["items"]
    assert [one["metadata"]["name"] for one in left] == []
