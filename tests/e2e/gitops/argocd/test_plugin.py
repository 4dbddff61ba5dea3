"""An Application of the plugin in docs/pipelines: Argo CD's own server of plugins compiles the intent. In this order."""

import json
import shutil

from tests.e2e.cluster.cluster_fixture import NOTEBOOKS, SHARED
from tests.e2e.gitops.argocd.controllers import NAMESPACE
from tests.e2e.gitops.argocd.synced import Synced

NAME, FOLDER = "by-plugin", "plugin"
RIGHTS = "clusterrole,clusterrolebinding"


def application(synced: Synced, plugin: str = "gpushare") -> dict[str, object]:
    """It has an overlay, of which the replicas are."""
    parameters = [{"name": "intent", "string": "base.yaml"}, {"name": "overlays", "array": ["over.yaml"]}]
    source = {
        "repoURL": synced.repository.address, "targetRevision": "HEAD", "path": FOLDER,
        "plugin": {"name": plugin, "parameters": parameters},
    }
    metadata = {"name": NAME, "namespace": NAMESPACE, "finalizers": ["resources-finalizer.argocd.argoproj.io"]}
    policy = {"automated": {"prune": True, "selfHeal": True}, "syncOptions": ["ServerSideApply=true"]}
    return {
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application", "metadata": metadata,
        "spec": {
            "project": "default", "source": source, "syncPolicy": policy,
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "gpu-system"},
        },
    }


def commit(synced: Synced, replicas: int) -> str:
    """An intent with an overlay, and the bundle of both, whose lock the plugin reads."""
    base = synced.intent(notebooks=NOTEBOOKS).partition("  gitops:")[0]
    over = f"spec: {{pools: {{notebooks: {{sharing: {{replicas: {replicas}}}}}}}}}\n"
    folder = synced.cluster_fixture.folder / "source"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "base.yaml").write_text(base)
    (folder / "over.yaml").write_text(over)
    if replicas > 1:
        bundle = synced.cluster_fixture.compile(base.replace("replicas: 4", f"replicas: {replicas}"))
        shutil.copytree(bundle, folder / "bundle")
    return synced.repository.commit(folder, FOLDER)


def error(synced: Synced) -> str:
    """Why the Application cannot be compared."""
    status = (synced.argocd.application(NAME) or {}).get("status", {})
    return str([one["message"] for one in status.get("conditions", ()) if one["type"] == "ComparisonError"])


def test_the_plugin_compiles_what_the_commit_has(synced: Synced) -> None:
    synced.cluster_fixture.choose(node_1="notebooks", node_2=None)
    synced.argocd.start_part("cmp-server")
    revision = commit(synced, 4)
    synced.cluster.apply(application(synced))
    synced.argocd.await_state(NAME, "Synced", "Healthy", revision=revision)
    assert synced.cluster_fixture.is_ready("node-1")
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 8}, "node-1 offers 8 shares")
    revision = commit(synced, 6)
    synced.argocd.await_state(NAME, "Synced", "Healthy", revision=revision)
    synced.cluster.wait(lambda: synced.cluster_fixture.offer("node-1") == {SHARED: 12}, "node-1 offers 12 shares")


def test_nothing_differs_over_many_comparisons(synced: Synced) -> None:
    before = synced.argocd.syncs(NAME)
    synced.argocd.await_comparisons(NAME, 3)
    assert synced.argocd.syncs(NAME) == before
    assert synced.argocd.state(NAME) == ("Synced", "Healthy")


def test_an_overlay_that_is_no_list_changes_nothing(synced: Synced) -> None:
    """Argo CD would otherwise bring the cluster to the intent without it."""
    change = {"spec": {"source": {"plugin": {"parameters": [
        {"name": "intent", "string": "base.yaml"}, {"name": "overlays", "string": "over.yaml"},
    ]}}}}
    synced.cluster.kubectl(
        "patch", "application", NAME, "--namespace", NAMESPACE, "--type=merge", "--patch", json.dumps(change)
    )
    synced.cluster.wait(lambda: "PARAM_OVERLAYS of plugin gpushare" in error(synced), "Argo CD shows what is wrong")
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 12}
    synced.cluster.apply(application(synced))
    synced.argocd.await_state(NAME, "Synced", "Healthy")


def test_with_hook_test_a_job_takes_a_share_after_each_sync(synced: Synced) -> None:
    synced.argocd.start_part("testing-cmp-server")
    synced.cluster.apply(application(synced, "gpushare-testing"))
    revision = commit(synced, 5)
    synced.argocd.await_state(NAME, "Synced", "Healthy", revision=revision)
    synced.cluster.wait(lambda: synced.argocd.hooks(NAME) == {"gpushare-test-notebooks": "Succeeded"}, "the Job has succeeded")
    jobs = "/apis/batch/v1/namespaces/gpu-system/jobs"
    synced.cluster.wait(lambda: synced.cluster.read(jobs)["items"] == [], "the Job is deleted")
    synced.cluster.apply(application(synced))
    revision = commit(synced, 6)
    synced.argocd.await_state(NAME, "Synced", "Healthy", revision=revision)


def test_an_intent_with_an_error_removes_nothing(synced: Synced) -> None:
    commit(synced, 1)
    synced.cluster.wait(lambda: "error GS" in error(synced), "Argo CD shows the finding")
    assert "over.yaml:1:" in error(synced)
    assert synced.cluster_fixture.offer("node-1") == {SHARED: 12}
    revision = synced.repository.revert()
    synced.argocd.await_state(NAME, "Synced", "Healthy", revision=revision)


def test_deletion_releases_the_node(synced: Synced) -> None:
    synced.cluster.kubectl("delete", "application", NAME, "--namespace", NAMESPACE)
    synced.cluster.kubectl("delete", RIGHTS, "gpushare-uninstall")
    synced.await_no_trace()
    synced.cluster.get("namespace", "gpu-system")
