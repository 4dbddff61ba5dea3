"""Argo CD itself syncs a bundle, follows its commits, and leaves nothing when its Application is deleted. In this order."""

import copy
import json
import re
import shlex
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster_fixture import KEPT, NOTEBOOKS, SHARED, SLICE, TRAINING
from tests.e2e.gitops.argocd.synced import NVIDIAS, OTHERS, OURS, ROOT, Synced
from tests.e2e.gitops.scenarios import NAMED, SCENARIOS
from tests.e2e.gitops.synced import PATH
from tests.support import paths

PAGE = (paths.ROOT / "docs" / "gitops.md").read_text()
MORE = NOTEBOOKS.replace("replicas: 4", "replicas: 6")


def test_the_first_sync_is_healthy_when_the_nodes_are_ready(synced: Synced) -> None:
    synced.cluster_fixture.choose(node_1="notebooks", node_2="training")
    commit = synced.commit(notebooks=NOTEBOOKS, training=TRAINING)
    synced.apply("project.yaml")
    synced.apply("argocd-cm.yaml")
    synced.apply("root.yaml")
    synced.await_commit(commit)
    # No wait: healthy means this.
    assert {node: synced.cluster_fixture.is_ready(node) for node in ("node-1", "node-2")} == {"node-1": True, "node-2": True}
    assert synced.cluster_fixture.condition("node-1")["reason"] == "Ready"
    assert synced.cluster_fixture.condition("node-2")["reason"] == "Ready"
    synced.cluster_fixture.await_offer("node-1", "notebooks")
    synced.cluster_fixture.await_offer("node-2", "training")
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 8}
    assert synced.cluster_fixture.offer("node-2") == {SLICE: 28}
    for name in (ROOT, *OTHERS):
        synced.argocd.await_state(name, "Synced", "Healthy")
    labels = synced.cluster.get("namespace", NAMESPACE)["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "privileged"


def test_nvidia_chart_gets_the_bundles_values_and_the_operators_health(synced: Synced) -> None:
    synced.argocd.await_state(NVIDIAS, "Synced", "Progressing")
    policy = synced.cluster.get("clusterpolicy", "cluster-policy")
    assert policy["spec"]["devicePlugin"]["config"]["name"] == "gpushare-profiles"
    for state, health in (("disabled", "Suspended"), ("notReady", "Progressing"), ("ready", "Healthy")):
        change = json.dumps({"status": {"state": state}})
        how = ("--subresource=status", "--type=merge", "--patch", change)
        synced.cluster.kubectl("patch", "clusterpolicy", "cluster-policy", *how)
        synced.argocd.await_state(NVIDIAS, "Synced", health)


def test_every_object_passes_strict_server_validation(synced: Synced) -> None:
    folder = synced.repository.folder / PATH / "argocd"
    for file in sorted(folder.glob("**/*.yaml")):
        synced.cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename", file)


def test_no_drift_in_an_hour_of_comparisons(synced: Synced) -> None:
    """Twenty: by default Argo CD compares every three minutes."""
    before = {name: synced.argocd.syncs(name) for name in (ROOT, NVIDIAS, OURS, *OTHERS)}
    synced.argocd.await_comparisons(OURS, 20)
    assert {name: synced.argocd.syncs(name) for name in before} == before
    assert before[OURS] == 1
    assert synced.argocd.state(OURS) == ("Synced", "Healthy")


def test_second_application_of_the_same_nodes_is_refused(synced: Synced) -> None:
    first = synced.argocd.application(OURS)
    assert first is not None
    spec = copy.deepcopy(first["spec"])
    spec["source"]["helm"]["valuesObject"] |= {"image": {"pullPolicy": "Always"}}
    spec["syncPolicy"]["retry"] = {"limit": 0}
    metadata = {"name": "second", "namespace": "argocd"}
    synced.cluster.apply({"apiVersion": first["apiVersion"], "kind": first["kind"], "spec": spec, "metadata": metadata})

    def said() -> str:
        status = (synced.argocd.application("second") or {}).get("status", {})
        return str(status.get("operationState", {}).get("message", ""))

    synced.cluster.wait(lambda: said().startswith("Shared resource found: "), "the sync of the second fails")
    assert synced.argocd.state(OURS) == ("Synced", "Healthy")
    # Argo CD gives it the finalizers of its hooks, though it has no object.
    synced.cluster.kubectl("delete", "application", "second", "--namespace", "argocd", "--wait=false")
    # By itself, in the time in which it would have looked at the second again, too.
    synced.argocd.await_resyncs(OURS, 2)
    assert synced.argocd.application("second") is not None
    for node in ("node-1", "node-2"):
        assert synced.cluster_fixture.is_ready(node)
        assert "gpushare.dev/pool" in synced.cluster_fixture.labels(node)
    for command in re.findall(r"^  (kubectl .*second.*|kubectl .*gpushare-uninstall)$", PAGE, re.MULTILINE):
        synced.cluster.kubectl(*shlex.split(command)[1:])
    synced.cluster.wait(lambda: synced.argocd.application("second") is None, "the second is gone")
    assert synced.argocd.state(OURS) == ("Synced", "Healthy")
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 8}


def test_deleted_configmap_is_recreated(synced: Synced) -> None:
    synced.cluster.kubectl("delete", "configmap", "gpushare-profiles", "--namespace", NAMESPACE)
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps/gpushare-profiles"
    synced.cluster.wait(lambda: synced.cluster.read(path), "the ConfigMap is there again")


def test_edited_daemonset_is_reverted_to_git(synced: Synced) -> None:
    def daemonset() -> dict[str, Any]:
        return dict(synced.cluster.get("daemonset", "gpushare-notebooks", "--namespace", NAMESPACE))

    def images(item: dict[str, Any]) -> list[str]:
        pod = item["spec"]["template"]["spec"]
        return [one["image"] for one in (*pod.get("initContainers", ()), *pod["containers"])]

    before = daemonset()
    synced.cluster.kubectl("set", "image", "daemonset/gpushare-notebooks", "*=example.org/other:1", "--namespace", NAMESPACE)
    synced.cluster.wait(
        lambda: daemonset()["metadata"]["generation"] >= before["metadata"]["generation"] + 2, "it is edited, and corrected"
    )
    assert images(daemonset()) == images(before)
    synced.argocd.await_state(OURS, "Synced", "Healthy")
    synced.cluster.wait(lambda: synced.cluster_fixture.is_ready("node-1"), "the pod of the right image is ready")
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 8}


def test_a_commit_that_changes_replicas_reaches_the_node(synced: Synced) -> None:
    commit = synced.commit(notebooks=MORE, training=TRAINING)
    synced.await_commit(commit)
    assert synced.cluster_fixture.condition("node-1")["reason"] == "Ready"
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")


def test_a_revert_brings_the_shares_back(synced: Synced) -> None:
    commit = synced.repository.revert()
    synced.await_commit(commit)
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 8}, "node-1 offers 8 shares")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=NAMED)
def test_a_commit_reaches_the_nodes(synced: Synced, scenario: Callable[[Synced], None]) -> None:
    scenario(synced)


def test_a_bundle_that_fails_on_its_node_is_degraded_with_the_reason(synced: Synced) -> None:
    """The tenants of the other node serve on."""
    synced.cluster_fixture.tenant("works", "node-1", SHARED)
    wrong = TRAINING.replace("a100-sxm4-40gb", "a30").replace("1g.5gb: 7", "1g.6gb: 4").replace("1g.5gb: 2", "1g.6gb: 2")
    commit = synced.commit(notebooks=NOTEBOOKS, training=wrong)
    synced.await_commit(commit, "Degraded")
    synced.cluster_fixture.await_reason("node-2", "CardMismatch")
    health = synced.argocd.resource(OURS, "DaemonSet", "gpushare-training")["health"]
    assert health["status"] == "Degraded"
    assert health["message"].startswith("CardMismatch: node node-2: ")
    assert synced.cluster_fixture.phase("works") == "Running"
    assert [one["reason"] for one in synced.failures("training")] == ["CardMismatch"]
    assert synced.failures("notebooks") == []
    synced.await_commit(synced.repository.revert())
    synced.cluster_fixture.await_offer("node-2", "training")
    synced.cluster.wait(lambda: synced.failures("training") == [], "the DaemonSet names no failing node")
    synced.cluster_fixture.dismiss("works")


def test_observing_leaves_nvidias_chart_and_the_gpus_as_they_are(synced: Synced) -> None:
    commit = synced.commit("  adoption: observe\n", notebooks=NOTEBOOKS, training=TRAINING)
    synced.await_commit(commit)
    synced.cluster_fixture.await_reason("node-2", "Observing")
    synced.cluster.wait(lambda: synced.argocd.state(ROOT) == ("OutOfSync", "Healthy"), "the root keeps what Git has no more")
    assert synced.cluster.try_kubectl("get", "clusterpolicy", "cluster-policy").returncode == 0
    assert all(synced.cluster_fixture.fake_nvml("node-2").mode(gpu)[0] for gpu in range(2))
    synced.await_commit(synced.repository.revert())
    synced.cluster_fixture.await_offer("node-2", "training")


def test_deletion_waits_for_tenants_and_leaves_nothing(synced: Synced) -> None:
    synced.cluster_fixture.tenant("works", "node-2", SLICE)
    synced.cluster.kubectl("delete", "application", ROOT, "--namespace", "argocd", "--wait=false")
    synced.cluster.wait(lambda: "gpushare.dev/pool" not in synced.cluster_fixture.labels("node-1"), "node-1 is released")
    daemonset = f"/apis/apps/v1/namespaces/{NAMESPACE}/daemonsets/gpushare-uninstall"
    synced.cluster.wait(
        lambda: synced.cluster.read(daemonset)["status"]["desiredNumberScheduled"] == 1, "only node-2 is left to be released"
    )
    # The driver must stay until then: NVIDIA's chart is deleted after ours.
    assert synced.cluster.try_kubectl("get", "clusterpolicy", "cluster-policy").returncode == 0
    assert synced.argocd.application(ROOT) is not None
    synced.cluster_fixture.dismiss("works")
    synced.cluster.wait(lambda: synced.argocd.application(ROOT) is None, "the Applications are gone")
    synced.cluster_fixture.await_no_trace(KEPT)
    assert synced.cluster.get("applications", "--namespace", "argocd")["items"] == []
    assert synced.cluster.try_kubectl("get", "namespace", NAMESPACE).returncode == 0


def test_deletion_of_a_bundle_that_observes_leaves_nothing(synced: Synced) -> None:
    synced.cluster_fixture.choose(node_1="notebooks", node_2="training")
    commit = synced.commit("  adoption: observe\n", notebooks=NOTEBOOKS, training=TRAINING)
    for file in ("project.yaml", "root.yaml"):
        synced.apply(file)
    synced.await_commit(commit)
    synced.cluster_fixture.await_reason("node-1", "Observing")
    synced.cluster.kubectl("delete", "application", ROOT, "--namespace", "argocd")
    synced.cluster_fixture.await_no_trace(KEPT)


def test_gpushare_goes_as_the_readme_says_and_nvidias_chart_stays(synced: Synced) -> None:
    commit = synced.commit(notebooks=NOTEBOOKS, training=TRAINING)
    for file in ("project.yaml", "root.yaml"):
        synced.apply(file)
    synced.await_commit(commit)
    synced.await_config_map("gpushare-profiles")
    synced.leave(since="patch application")
    synced.cluster_fixture.await_no_trace()
    synced.await_config_map("")
    assert [one["metadata"]["name"] for one in synced.cluster.get("applications", "--namespace", "argocd")["items"]] == [
        NVIDIAS
    ]
    assert synced.cluster.try_kubectl("get", "namespace", NAMESPACE).returncode == 0
