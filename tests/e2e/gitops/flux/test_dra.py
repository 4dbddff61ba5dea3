"""Flux installs a bundle half-way to DRA, follows its commits, and releases the nodes when it is deleted. In this order."""

from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED
from tests.e2e.cluster.dra.agents import BACK_END, Agents
from tests.e2e.cluster.dra.objects import tenant
from tests.e2e.gitops import half_way
from tests.e2e.gitops.flux.controllers import NAMESPACE as FLUX
from tests.e2e.gitops.flux.synced import OURS, SYNC, Synced
from tests.e2e.gitops.half_way import CLAIMS, DRIVER, INSTANCE, PLUGIN, TEMPLATE, TEMPLATES
from tests.e2e.gitops.synced import PATH

KINDS = "helmrelease.helm.toolkit.fluxcd.io,helmrepository,configmap"


def test_first_sync_installs_both_back_ends_and_hands_a_node_to_the_driver(synced: Synced, agents: Agents) -> None:
    commit = half_way.commit(synced)
    synced.apply()
    synced.flux.await_commit(SYNC, commit)
    cluster_fixture = synced.cluster_fixture
    assert {node: cluster_fixture.is_ready(node) for node in ("node-1", "node-2")} == {"node-1": True, "node-2": True}
    assert cluster_fixture.labels("node-2")[BACK_END] == "dra"
    assert len(agents.devices("node-2")) == 4
    assert synced.flux.names("helmreleases") == {OURS, DRIVER, PLUGIN}
    synced.cluster.apply(tenant("claims", TEMPLATE, "--mib", "19000"))
    cluster_fixture.await_tenant("claims", "ready")
    cluster_fixture.tenant("limits", "node-2", INSTANCE, "--mib", "19000")


def test_every_object_passes_strict_server_validation(synced: Synced, agents: Agents) -> None:
    for file in sorted((synced.repository.folder / PATH / "flux").glob("**/*.yaml")):
        if file.name != "kustomization.yaml":
            synced.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", file)


def test_commit_leaves_claims_and_their_pods_alone(synced: Synced, agents: Agents) -> None:
    before = half_way.uids(synced, CLAIMS)
    synced.await_commit(half_way.commit(synced, notebooks=NOTEBOOKS.replace("replicas: 4", "replicas: 6")))
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")
    assert half_way.uids(synced, CLAIMS) == before
    assert half_way.uids(synced, TEMPLATES).keys() == {TEMPLATE}
    assert [synced.cluster_fixture.phase(name) for name in ("claims", "limits")] == ["Running", "Running"]
    synced.cluster_fixture.dismiss("limits")


def test_deletion_waits_for_claims_and_leaves_the_driver_to_a_person(synced: Synced, agents: Agents) -> None:
    synced.cluster.kubectl("delete", "kustomization", SYNC, "--namespace", FLUX, "--wait=false")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    assert synced.flux.names("helmreleases") == {OURS, DRIVER, PLUGIN}
    assert synced.cluster_fixture.phase("claims") == "Running"
    synced.cluster_fixture.dismiss("claims")
    synced.cluster.wait(lambda: synced.flux.read("kustomizations", SYNC) is None, "the Kustomization is gone")
    assert synced.flux.names("helmreleases") == {DRIVER, PLUGIN}
    assert half_way.left(synced) == []
    assert len(half_way.drivers(synced)) == 1
    synced.leave(since="kubectl get nodes")
    assert half_way.drivers(synced) == []
    synced.cluster.kubectl("delete", KINDS, PLUGIN, "--namespace", FLUX)
    synced.cluster_fixture.await_no_trace()
