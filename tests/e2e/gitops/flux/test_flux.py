"""Flux itself syncs a bundle, follows its commits, and releases the nodes when its Kustomization is deleted. In this order."""

from collections.abc import Callable

import pytest
import yaml

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED, SLICE, TRAINING
from tests.e2e.gitops.flux.controllers import NAMESPACE as FLUX
from tests.e2e.gitops.flux.synced import NVIDIAS, OURS, SYNC, Synced
from tests.e2e.gitops.scenarios import NAMED, SCENARIOS
from tests.e2e.gitops.synced import PATH

MORE = NOTEBOOKS.replace("replicas: 4", "replicas: 6")


def test_the_first_sync_is_ready_when_the_nodes_are(synced: Synced) -> None:
    synced.cluster_fixture.choose(node_1="notebooks", node_2="training")
    commit = synced.commit(notebooks=NOTEBOOKS, training=TRAINING)
    synced.apply()
    synced.flux.await_commit(SYNC, commit)
    # No wait: Ready means this.
    assert {node: synced.cluster_fixture.is_ready(node) for node in ("node-1", "node-2")} == {"node-1": True, "node-2": True}
    assert synced.cluster_fixture.condition("node-1")["reason"] == "Ready"
    assert synced.cluster_fixture.condition("node-2")["reason"] == "Ready"
    synced.cluster_fixture.await_offer("node-1", "notebooks")
    synced.cluster_fixture.await_offer("node-2", "training")
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 8}
    assert synced.cluster_fixture.offer("node-2") == {SLICE: 28}
    labels = synced.cluster.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_nvidia_chart_is_installed_first_with_the_bundles_values(synced: Synced) -> None:
    assert synced.flux.condition("helmreleases", NVIDIAS)["status"] == "True"
    policy = synced.cluster.get("clusterpolicy", "cluster-policy")
    assert policy["spec"]["devicePlugin"]["config"]["name"] == "gpushare-profiles"
    ours = synced.cluster.get("daemonset", "gpushare-notebooks", "--namespace", NAMESPACE)
    assert policy["metadata"]["creationTimestamp"] <= ours["metadata"]["creationTimestamp"]


def test_every_object_passes_strict_server_validation(synced: Synced) -> None:
    folder = synced.repository.folder / PATH / "flux"
    for file in sorted(folder.glob("**/*.yaml")):
        if file.name != "kustomization.yaml":
            synced.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", file)


def test_source_controller_packages_the_chart_with_the_commit_in_its_version(synced: Synced) -> None:
    artifact = (synced.flux.read("helmcharts", f"{FLUX}-{OURS}") or {})["status"]["artifact"]
    version = yaml.safe_load((synced.repository.folder / PATH / "chart" / "Chart.yaml").read_text())["version"]
    assert artifact["revision"] == f"{version}+{synced.repository.head()[:12]}"


def test_a_commit_that_changes_replicas_reaches_the_node(synced: Synced) -> None:
    pods = {node: synced.cluster_fixture.pod_of(node) for node in ("node-1", "node-2")}
    commit = synced.commit(notebooks=MORE, training=TRAINING)
    synced.await_commit(commit)
    assert synced.cluster_fixture.condition("node-1")["reason"] == "Ready"
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")
    training = synced.cluster_fixture.pod_of("node-2")
    assert pods["node-2"] is not None
    assert training is not None
    assert training["metadata"]["uid"] == pods["node-2"]["metadata"]["uid"], "the other pool's pod is not restarted"


def test_a_revert_brings_the_shares_back(synced: Synced) -> None:
    synced.await_commit(synced.repository.revert())
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 8}, "node-1 offers 8 shares")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMED)
def test_a_commit_reaches_the_nodes(synced: Synced, scenario: Callable[[Synced], None]) -> None:
    scenario(synced)


def test_cluster_changes_are_reverted_to_git(synced: Synced) -> None:
    # Between two passes: in a pass the controller would wait for what was deleted, until its time is up.
    synced.flux.reconcile("kustomizations", SYNC)
    synced.cluster.kubectl("delete", "configmap", NVIDIAS, "--namespace", FLUX)
    synced.cluster.kubectl(
        "patch",
        "namespace",
        NAMESPACE,
        "--type=merge",
        "--patch",
        '{"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}',
    )

    def is_back() -> bool:
        labels = synced.cluster.get("namespace", NAMESPACE)["metadata"]["labels"]
        return bool(labels["pod-security.kubernetes.io/enforce"] == "privileged")

    synced.cluster.wait(is_back, "the namespace has its label again")
    path = f"/api/v1/namespaces/{FLUX}/configmaps/{NVIDIAS}"
    synced.cluster.wait(lambda: synced.cluster.read(path), "the values of NVIDIA's chart are there again")


def test_observing_leaves_nvidias_chart_and_the_gpus_as_they_are(synced: Synced) -> None:
    commit = synced.commit("  adoption: observe\n", notebooks=NOTEBOOKS, training=TRAINING)
    synced.await_commit(commit)
    synced.flux.await_commit(SYNC, commit)
    synced.cluster_fixture.await_reason("node-2", "Observing")
    assert synced.flux.names("helmreleases") == {OURS, NVIDIAS}
    assert synced.cluster.try_kubectl("get", "clusterpolicy", "cluster-policy").returncode == 0
    assert all(synced.cluster_fixture.fake_nvml("node-2").mode(gpu)[0] for gpu in range(2))
    synced.await_commit(synced.repository.revert())
    synced.cluster_fixture.await_offer("node-2", "training")


def test_deletion_waits_for_tenants_and_leaves_nothing(synced: Synced) -> None:
    synced.cluster_fixture.tenant("works", "node-2", SLICE)
    synced.cluster.kubectl("delete", "kustomization", SYNC, "--namespace", FLUX, "--wait=false")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    # The driver must stay until the last node is.
    assert synced.flux.names("helmreleases") == {OURS, NVIDIAS}
    assert synced.flux.read("kustomizations", SYNC) is not None
    synced.cluster_fixture.dismiss("works")
    synced.cluster.wait(lambda: synced.flux.read("kustomizations", SYNC) is None, "the Kustomization is gone")
    assert "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-2")
    assert synced.flux.names("helmreleases") == {NVIDIAS}
    # What is left of the README's way to leave.
    synced.await_config_map("gpushare-profiles")
    synced.leave(since="kubectl get nodes")
    synced.await_config_map("")
    kinds = "helmrelease.helm.toolkit.fluxcd.io,helmrepository,configmap"
    synced.cluster.kubectl("delete", kinds, NVIDIAS, "--namespace", FLUX)
    synced.cluster_fixture.await_no_trace()
    assert synced.cluster.try_kubectl("get", "namespace", NAMESPACE).returncode == 0
