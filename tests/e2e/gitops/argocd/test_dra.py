"""Argo CD installs a bundle half-way to DRA, follows its commits, and leaves nothing when it is deleted. In this order."""

import re

from tests.e2e.cluster.cluster_fixture import KEPT, NOTEBOOKS, SHARED
from tests.e2e.cluster.dra.agents import BACK_END, Agents
from tests.e2e.cluster.dra.objects import tenant
from tests.e2e.gitops import half_way
from tests.e2e.gitops.argocd.synced import OURS, ROOT, Synced
from tests.e2e.gitops.half_way import CLAIMS, DRIVER, INSTANCE, PLUGIN, TEMPLATE, TEMPLATES
from tests.e2e.gitops.synced import PATH


def test_first_sync_installs_both_back_ends_and_hands_a_node_to_the_driver(synced: Synced, agents: Agents) -> None:
    head = half_way.commit(synced)
    for file in ("project.yaml", "argocd-cm.yaml", "root.yaml"):
        synced.apply(file)
    synced.await_commit(head)
    cluster_fixture = synced.cluster_fixture
    assert {node: cluster_fixture.is_ready(node) for node in ("node-1", "node-2")} == {"node-1": True, "node-2": True}
    assert cluster_fixture.labels("node-2")[BACK_END] == "dra"
    assert [one["attributes"]["profile"]["string"] for one in agents.devices("node-2").values()] == ["3g.20gb"] * 4
    cluster_fixture.await_offer("node-1", "notebooks")
    assert (cluster_fixture.offer("node-1"), cluster_fixture.offer("node-2")) == ({SHARED: 8}, {})
    for name in (DRIVER, PLUGIN):
        synced.argocd.await_state(name, "Synced", "Healthy")
    synced.cluster.apply(tenant("claims", TEMPLATE, "--mib", "19000"))
    cluster_fixture.await_tenant("claims", "ready")
    cluster_fixture.tenant("limits", "node-2", INSTANCE, "--mib", "19000")


def test_every_object_passes_strict_server_validation(synced: Synced, agents: Agents) -> None:
    folder = synced.repository.folder / PATH / "argocd"
    for file in sorted(folder.glob("**/*.yaml")):
        synced.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", file)


def test_claim_templates_are_no_difference_and_are_left_alone(synced: Synced, agents: Agents) -> None:
    """They are hooks: Argo CD does not compare them, and makes them anew with a sync, not with a comparison."""
    before, syncs = half_way.uids(synced, TEMPLATES), {name: synced.argocd.syncs(name) for name in (OURS, DRIVER, PLUGIN)}
    assert before.keys() == {TEMPLATE}
    for name in syncs:
        synced.argocd.await_comparisons(name, 3)
    assert {name: synced.argocd.syncs(name) for name in syncs} == syncs
    assert {name: synced.argocd.state(name) for name in syncs} == dict.fromkeys(syncs, ("Synced", "Healthy"))
    assert half_way.uids(synced, TEMPLATES) == before


def test_commit_leaves_claims_and_their_pods_alone(synced: Synced, agents: Agents) -> None:
    """With it the templates are made anew; claims that were made of them stay."""
    before = half_way.uids(synced, CLAIMS)
    synced.await_commit(half_way.commit(synced, notebooks=NOTEBOOKS.replace("replicas: 4", "replicas: 6")))
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")
    assert half_way.uids(synced, CLAIMS) == before
    assert [synced.cluster_fixture.phase(name) for name in ("claims", "limits")] == ["Running", "Running"]
    synced.cluster.apply(tenant("later", TEMPLATE, "--mib", "19000"))
    synced.cluster_fixture.await_tenant("later", "ready")
    synced.cluster_fixture.dismiss("later")


def test_driver_stays_when_the_pool_goes_back_until_a_person_deletes_it(synced: Synced, agents: Agents) -> None:
    """The node waits for the tenants of the driver, which must serve them until then."""
    head = half_way.commit(synced, backend="device-plugin")
    synced.argocd.refresh(ROOT)
    synced.cluster_fixture.await_reason("node-2", "GPUBusy")
    synced.cluster.wait(lambda: synced.argocd.revision(ROOT) == head, "the root is compared with the commit")
    synced.argocd.await_comparisons(DRIVER, 1)
    assert synced.argocd.state(DRIVER) == ("Synced", "Healthy")
    assert len(agents.devices("node-2")) == 4
    synced.cluster_fixture.dismiss("claims", "limits")
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-2") == {INSTANCE: 4}, "the plugin offers the instances")
    synced.await_commit(head)
    readme = (synced.repository.folder / PATH / "README.md").read_text()
    [look, delete] = re.findall(
        r"^    (kubectl .*)$", readme.partition("## NVIDIA's DRA driver")[2].partition("\n## ")[0], re.M
    )
    assert synced.cluster_fixture.shell(look).stdout == ""
    assert len(half_way.drivers(synced)) == 1
    done = synced.cluster_fixture.shell(delete)
    assert done.returncode == 0, done.stderr
    assert half_way.drivers(synced) == []
    synced.argocd.await_state(ROOT, "Synced", "Healthy")


def test_deletion_leaves_nothing_and_the_driver_until_the_last_claim_has_ended(synced: Synced, agents: Agents) -> None:
    synced.await_commit(synced.repository.revert())
    synced.cluster.wait(lambda: synced.cluster_fixture.labels("node-2").get(BACK_END) == "dra", "the driver has node-2 again")
    synced.cluster_fixture.await_offer("node-2", "training")
    synced.cluster.apply(tenant("works", TEMPLATE, "--mib", "19000"))
    synced.cluster_fixture.await_tenant("works", "ready")
    synced.cluster.kubectl("delete", "application", ROOT, "--namespace", "argocd", "--wait=false")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    synced.cluster.wait(lambda: half_way.uids(synced, TEMPLATES) == {}, "the templates are gone")
    assert len(half_way.drivers(synced)) == 1
    assert synced.cluster_fixture.phase("works") == "Running"
    synced.cluster_fixture.dismiss("works")
    synced.cluster.wait(lambda: synced.argocd.application(ROOT) is None, "the Applications are gone")
    synced.cluster_fixture.await_no_trace(KEPT)
    assert synced.cluster.get("applications", "--namespace", "argocd")["items"] == []
    assert half_way.drivers(synced) == []
    assert half_way.left(synced) == []
