"""Commits that every tool must bring to the nodes, and what they leave there. Each begins and ends with the same two pools."""

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED, SLICE, TRAINING
from tests.e2e.gitops import upstream
from tests.e2e.gitops.synced import SyncedCluster

SHARES = {"node-1": {SHARED: 8}, "node-2": {SLICE: 28}}
"""What both nodes offer with NOTEBOOKS and TRAINING."""


def change_layout_and_cap(synced: SyncedCluster) -> None:
    """Another layout of one pool and a cap for the other: the instances change, and a process over the cap is ended."""
    layout = TRAINING.replace("{1g.5gb: 7}", "{2g.10gb: 3}").replace("{1g.5gb: 2}", "{2g.10gb: 2}")
    _bring(synced, synced.intent(notebooks=f"{NOTEBOOKS}, memory: {{cap: 1Gi}}", training=layout))
    _await_offers(synced, {"node-1": {SHARED: 8}, "node-2": {"nvidia.com/mig-2g.10gb.shared": 12}})
    synced.cluster_fixture.start("over", "node-1", SHARED, "--mib", "1500")
    synced.cluster.wait(lambda: "GPUProcessKilled" in dict(synced.cluster_fixture.events("over")), "the cap is enforced")
    synced.cluster_fixture.dismiss("over")
    _back(synced)


def rename_pool(synced: SyncedCluster) -> None:
    """A pool with another name and the same nodes: they move, and no other pool is restarted."""
    others = synced.cluster_fixture.pod_of("node-2")
    text = synced.intent(notebooks=NOTEBOOKS, training=TRAINING)
    assert text.count("    notebooks: {") == 1
    _bring(synced, text.replace("    notebooks: {", "    classroom: {"))
    synced.cluster_fixture.await_offer("node-1", "classroom")
    _await_offers(synced, SHARES)
    now = synced.cluster_fixture.pod_of("node-2")
    assert others is not None
    assert now is not None
    assert now["metadata"]["uid"] == others["metadata"]["uid"]
    _back(synced)


def change_version_of_stack(synced: SyncedCluster) -> None:
    """Another version of NVIDIA's chart is installed, and the shares stay."""
    before, newest = upstream.newest()
    text = synced.intent(notebooks=NOTEBOOKS, training=TRAINING)
    assert text.count("  platform: {") == 1
    for version, commit in ((before, text.replace("  platform: {", f"  platform: {{version: {before}, ")), (newest, None)):
        synced.await_commit(synced.repository.revert() if commit is None else synced.commit_intent(commit))
        synced.cluster.wait(lambda at=version: _version(synced) == at, f"gpu-operator {version} is installed")
        _await_offers(synced, SHARES)


def commit_in_outage(synced: SyncedCluster) -> None:
    """A commit while the API server is away reaches the nodes when it is back. Until then tenants and shares are as before."""
    more = NOTEBOOKS.replace("replicas: 4", "replicas: 5")
    cluster_fixture = synced.cluster_fixture
    cluster_fixture.tenant("works", "node-2", SLICE, "--mib", "700")
    node, fake_nvml = cluster_fixture.node("node-2"), cluster_fixture.fake_nvml("node-2")
    working = node.processes("--mib", "700")
    instances = [len(fake_nvml.instances(gpu)) for gpu in (0, 1)]
    with synced.outage():
        commit = synced.commit_intent(synced.intent(notebooks=more, training=TRAINING))
        assert node.processes("--mib", "700") == working != []
        assert [len(fake_nvml.instances(gpu)) for gpu in (0, 1)] == instances == [7, 7]
    synced.await_commit(commit)
    _await_offers(synced, {"node-1": {SHARED: 10}, "node-2": {SLICE: 28}})
    assert node.processes("--mib", "700") == working
    cluster_fixture.dismiss("works")
    _back(synced)


def remove_pool(synced: SyncedCluster) -> None:
    """A pool that goes: its DaemonSet is removed and its node released, and it comes back with the pool."""
    synced.await_commit(synced.commit(notebooks=NOTEBOOKS))
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-2"), "node-2 is released")
    assert synced.cluster.try_kubectl("get", "daemonset", "gpushare-training", "--namespace", NAMESPACE).returncode
    assert not any(synced.cluster_fixture.fake_nvml("node-2").mode(gpu)[0] for gpu in range(2))
    _back(synced)


# First the one with an outage: before it kubelet needs five minutes to forget the resources of another layout.
SCENARIOS = (commit_in_outage, change_layout_and_cap, rename_pool, change_version_of_stack, remove_pool)
NAMED = [scenario.__name__ for scenario in SCENARIOS]


def _bring(synced: SyncedCluster, text: str) -> None:
    synced.await_commit(synced.commit_intent(text))


def _back(synced: SyncedCluster) -> None:
    synced.await_commit(synced.repository.revert())
    _await_offers(synced, SHARES)
    for node, pool in (("node-1", "notebooks"), ("node-2", "training")):
        synced.cluster_fixture.await_offer(node, pool)


def _await_offers(synced: SyncedCluster, offers: dict[str, dict[str, int]]) -> None:
    for node, offer in offers.items():
        synced.cluster.wait(lambda at=node, of=offer: synced.cluster_fixture.offer(at) == of, f"{node} offers {offer}")


def _version(synced: SyncedCluster) -> str:
    return str(synced.cluster.get("clusterpolicy", "cluster-policy")["spec"].get("chart"))
