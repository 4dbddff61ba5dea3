"""Argo CD installs a bundle half-way to DRA, follows its commits, and leaves nothing when it is deleted. In this order."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.cluster.cluster_fixture import COURSE, KEPT, NOTEBOOKS, SHARED
from tests.e2e.cluster.dra.agents import BACK_END, DRIVER_SPACE, Agents, with_agents
from tests.e2e.cluster.dra.objects import tenant
from tests.e2e.gitops.agents_charts import add_agents
from tests.e2e.gitops.argocd.synced import OURS, ROOT, Synced
from tests.e2e.gitops.synced import PATH
from tests.support.paths import ROOT as SOURCES

EXAMPLE = yaml.safe_load((SOURCES / "examples/21-dra-half-way/intent.yaml").read_text())["spec"]["pools"]["training"]
DRIVER, PLUGIN = "tests-gpus-dra-driver-nvidia-gpu", "tests-gpus-nvidia-device-plugin"
INSTANCE, TEMPLATE = "nvidia.com/mig-3g.20gb", "gpushare-training.3g.20gb"
CLAIMS = f"/apis/resource.k8s.io/v1/namespaces/{COURSE}/resourceclaims"
TEMPLATES = f"/apis/resource.k8s.io/v1/namespaces/{COURSE}/resourceclaimtemplates"


@pytest.fixture(scope="module")
def agents(synced: Synced) -> Iterator[Agents]:
    """Both back ends, as charts that Argo CD installs."""
    with with_agents(synced.cluster_fixture) as agents:
        add_agents(agents, synced.charts)
        synced.cluster_fixture.choose(node_1="notebooks", node_2="training")
        yield agents


def commit(synced: Synced, *, notebooks: str = NOTEBOOKS, backend: str = "dra") -> str:
    """Commit the bundle of the example, whose pool that stays has another mode: the cluster has no MPS."""
    taken = {key: EXAMPLE[key] for key in ("card", "sharing", *(["requests"] if backend == "dra" else []))}
    training = "".join(f"{key}: {yaml.safe_dump(value, default_flow_style=True, width=999)}, " for key, value in taken.items())
    training = training.replace("\n", "").replace("...", "") + f"backend: {backend}, namespaces: [{COURSE}]"
    text = synced.intent(notebooks=f"{notebooks}, namespaces: [{COURSE}]", training=training)
    dra = ", dra: {via: chart}" if backend == "dra" else ""
    platform = f"stack: device-plugin, values: {{runtimeClassName: nvidia}}{dra}, "
    assert text.count("  platform: {") == 1
    return synced.commit_intent(text.replace("  platform: {", f"  platform: {{{platform}") + '  kubernetes: "1.36"\n')


def uids(synced: Synced, path: str) -> dict[str, str]:
    """By name."""
    return {one["metadata"]["name"]: one["metadata"]["uid"] for one in synced.cluster.read(path)["items"]}


def daemon_sets(synced: Synced) -> list[dict[str, Any]]:
    """Those of the driver."""
    return list(synced.cluster.read(f"/apis/apps/v1/namespaces/{DRIVER_SPACE}/daemonsets")["items"])


def test_first_sync_installs_both_back_ends_and_hands_a_node_to_the_driver(synced: Synced, agents: Agents) -> None:
    head = commit(synced)
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
    before, syncs = uids(synced, TEMPLATES), {name: synced.argocd.syncs(name) for name in (OURS, DRIVER, PLUGIN)}
    assert before.keys() == {TEMPLATE}
    for name in syncs:
        synced.argocd.await_comparisons(name, 3)
    assert {name: synced.argocd.syncs(name) for name in syncs} == syncs
    assert {name: synced.argocd.state(name) for name in syncs} == dict.fromkeys(syncs, ("Synced", "Healthy"))
    assert uids(synced, TEMPLATES) == before


def test_commit_leaves_claims_and_their_pods_alone(synced: Synced, agents: Agents) -> None:
    """With it the templates are made anew; claims that were made of them stay."""
    before = uids(synced, CLAIMS)
    synced.await_commit(commit(synced, notebooks=NOTEBOOKS.replace("replicas: 4", "replicas: 6")))
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")
    assert uids(synced, CLAIMS) == before
    assert [synced.cluster_fixture.phase(name) for name in ("claims", "limits")] == ["Running", "Running"]
    synced.cluster.apply(tenant("later", TEMPLATE, "--mib", "19000"))
    synced.cluster_fixture.await_tenant("later", "ready")
    synced.cluster_fixture.dismiss("later")


def test_driver_stays_when_the_pool_goes_back_until_a_person_deletes_it(synced: Synced, agents: Agents) -> None:
    """The node waits for the tenants of the driver, which must serve them until then."""
    head = commit(synced, backend="device-plugin")
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
    assert len(daemon_sets(synced)) == 1
    done = synced.cluster_fixture.shell(delete)
    assert done.returncode == 0, done.stderr
    assert daemon_sets(synced) == []
    synced.argocd.await_state(ROOT, "Synced", "Healthy")


def test_deletion_leaves_nothing_and_the_driver_until_the_last_claim_has_ended(synced: Synced, agents: Agents) -> None:
    synced.await_commit(synced.repository.revert())
    synced.cluster.wait(lambda: synced.cluster_fixture.labels("node-2").get(BACK_END) == "dra", "the driver has node-2 again")
    synced.cluster_fixture.await_offer("node-2", "training")
    synced.cluster.apply(tenant("works", TEMPLATE, "--mib", "19000"))
    synced.cluster_fixture.await_tenant("works", "ready")
    synced.cluster.kubectl("delete", "application", ROOT, "--namespace", "argocd", "--wait=false")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    synced.cluster.wait(lambda: uids(synced, TEMPLATES) == {}, "the templates are gone")
    assert len(daemon_sets(synced)) == 1
    assert synced.cluster_fixture.phase("works") == "Running"
    synced.cluster_fixture.dismiss("works")
    synced.cluster.wait(lambda: synced.argocd.application(ROOT) is None, "the Applications are gone")
    synced.cluster_fixture.await_no_trace(KEPT)
    assert synced.cluster.get("applications", "--namespace", "argocd")["items"] == []
    assert daemon_sets(synced) == []
    left = synced.cluster.get("deviceclasses,resourceclaimtemplates,resourceclaims", "--all-namespaces")["items"]
    assert [one["metadata"]["name"] for one in left] == []
