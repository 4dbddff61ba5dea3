"""The chart's life on nodes: upgrade, rollback and uninstallation by both majors of Helm; Argo CD's way."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster.bundles import NAMESPACE, rendered
from tests.e2e.cluster.cluster_fixture import A100, KEPT, SHARED, ClusterFixture, intent
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.release import IMAGE, Release
from tests.e2e.cluster.test_changes import BOTH, SEVEN, SEVENS, await_offers, sleeper, slicing
from tests.e2e.cluster.test_examples import versions


@pytest.fixture
def nodes(cluster_fixture: ClusterFixture) -> Iterator[ClusterFixture]:
    """Both nodes with A100s, in the pool `training` as soon as there is one."""
    cluster_fixture.clear()
    for node in BOTH:
        cluster_fixture.equip(node, A100)
    cluster_fixture.choose(node_1="training", node_2="training")
    yield cluster_fixture
    cluster_fixture.release = Release(cluster_fixture.cluster)


QUICK = ", rollout: {maxUnavailable: 2}"
FAST = SEVENS.replace("enforcement: {grace: 2s}", "rollout: {maxUnavailable: 2}")


@pytest.mark.parametrize("major", [3, 4])
def test_release_is_upgraded_rolled_back_and_uninstalled_without_residue(nodes: ClusterFixture, major: int) -> None:
    nodes.release = Release(nodes.cluster, major)
    nodes.install(intent(training=slicing(4, QUICK)))
    await_offers(nodes, {SHARED: 8})
    nodes.install(intent(training=FAST))
    await_offers(nodes, {SEVEN: 14})
    nodes.release.rollback()
    await_offers(nodes, {SHARED: 8})
    done = nodes.release.try_helm("uninstall", "gpushare")
    assert done.returncode == 0, done.stderr
    nodes.await_no_trace(KEPT)
    await_whole(nodes)
    # The plugin's values still name our ConfigMap when it starts again.
    restart_plugins(nodes, "--mounted")
    nodes.cluster.apply(mounting("plugin"))
    nodes.cluster.wait(lambda: nodes.phase("plugin", NAMESPACE) == "Running", "a pod that mounts it starts")
    await_whole(nodes)
    # The rest as the uninstallation tells, Helm 4 in one line and Helm 3 from 3.18 on; NVIDIA's chart is not here.
    assert nodes.bundle is not None
    restore, delete = yaml.safe_load((nodes.bundle / "chart/values.yaml").read_text())["uninstall"]["nextSteps"]
    text = f"Left to do, in the folder of the bundle:\n{restore}\n{delete}"
    assert major == 3 or done.stderr.endswith(f'{json.dumps(text)[1:-1]}"\n'), done.stderr
    assert "--values gpu-operator/restore-values.yaml" in restore
    assert "gpushare-profiles" in nodes.shell(delete).stdout
    assert nodes.traces() == [KEPT], "a pod still needs it"
    restart_plugins(nodes, "--config-map", "")
    nodes.dismiss("plugin", where=NAMESPACE)
    assert nodes.shell(delete).returncode == 0
    await_whole(nodes)
    assert nodes.traces() == []
    pending = ("get", "pods", "--all-namespaces", "--field-selector", "status.phase=Pending", "--output", "name")
    assert nodes.cluster.kubectl(*pending) == ""
    # What would have come of it without the ConfigMap.
    restart_plugins(nodes, "--mounted")
    nodes.cluster.wait(lambda: not any(map(nodes.offer, BOTH)), "without its ConfigMap the plugin offers nothing")
    restart_plugins(nodes)


def mounting(name: str) -> dict[str, Any]:
    """A pod that mounts the ConfigMap, as those of the plugin do."""
    mount = {"name": "configs", "mountPath": "/available-configs"}
    container = {"name": "plugin", "image": PAUSE, "imagePullPolicy": "Never", "volumeMounts": [mount]}
    volume = {"name": "configs", "configMap": {"name": "gpushare-profiles"}}
    spec = {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}


def await_whole(nodes: ClusterFixture) -> None:
    nodes.cluster.wait(lambda: all(nodes.offer(node) == {"nvidia.com/gpu": 2} for node in BOTH), "nodes are exclusive again")


def restart_plugins(nodes: ClusterFixture, *arguments: str) -> None:
    """As new values of the plugin's chart do."""
    for node in map(nodes.node, BOTH):
        nodes.fleet.stop_plugin(node)
        nodes.fleet.start_plugin(nodes.cluster, node, *arguments)


def test_nodes_with_a_release_request_are_released(nodes: ClusterFixture) -> None:
    """By their own watch; `tests/node/adapters/kube/test_pods.py` has that they are told at once."""
    nodes.install(intent(training=slicing(4, QUICK)))
    await_offers(nodes, {SHARED: 8})
    nodes.cluster.wait(lambda: all(map(nodes.is_ready, BOTH)), "the runtime's pods are Ready")
    before = [pod["metadata"]["uid"] for node in BOTH for pod in nodes.runtime_pods(node)]
    # A pod that lives, as that of the Job.
    nodes.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "asking", "namespace": NAMESPACE},
            "spec": {
                "containers": [{"name": "a", "image": PAUSE, "imagePullPolicy": "Never"}],
                "terminationGracePeriodSeconds": 1,
            },
        }
    )
    uid = nodes.cluster.get("pod", "asking", "--namespace", NAMESPACE)["metadata"]["uid"]
    nodes.cluster.kubectl("annotate", "node", *BOTH, f"gpushare.dev/release=asking/{uid}")

    def living() -> list[str]:
        return [pod["metadata"]["uid"] for node in BOTH for pod in nodes.runtime_pods(node)]

    nodes.cluster.wait(lambda: not set(before) & set(living()), "both pods have begun to end")
    released = "gpushare.dev/released"
    nodes.cluster.wait(lambda: all(released in nodes.state(node)["metadata"]["annotations"] for node in BOTH), "both let go")


@pytest.mark.failure_case(81)
def test_uninstall_abandoned_by_helm_withdraws_its_requests(nodes: ClusterFixture) -> None:
    """It takes the Job's rights away, and the Job with them; the nodes see to the rest."""
    nodes.install(intent(training=FAST), "--set", "uninstall.timeout=30m")
    await_offers(nodes, {SEVEN: 14})
    sleeper(nodes, "asleep", "node-1", SEVEN)
    try:
        assert nodes.release.try_helm("uninstall", "gpushare", "--timeout", "40s").returncode != 0
        request = "gpushare.dev/release"
        notes = [nodes.state(node)["metadata"].get("annotations", {}) for node in BOTH]
        print("when Helm gave up:", [note.get(request) for note in notes])

        def is_free() -> bool:
            return not any(request in nodes.state(node)["metadata"].get("annotations", {}) for node in BOTH)

        nodes.cluster.wait(is_free, "nobody is asked any more")
        await_offers(nodes, {SEVEN: 14})
        assert nodes.phase("asleep") == "Running"
    finally:
        nodes.dismiss("asleep")
    nodes.release.uninstall("--no-hooks")
    nodes.install(intent(training=FAST))
    await_offers(nodes, {SEVEN: 14})
    nodes.release.uninstall()
    nodes.await_no_trace(KEPT)


def test_uninstall_blocked_by_tenants_reports_the_node_and_changes_nothing(nodes: ClusterFixture) -> None:
    nodes.install(intent(training=FAST), "--set", "uninstall.timeout=60s")
    await_offers(nodes, {SEVEN: 14})
    sleeper(nodes, "asleep", "node-1", SEVEN)
    try:
        assert nodes.release.try_helm("uninstall", "gpushare").returncode != 0
        said = nodes.cluster.kubectl("logs", "job/gpushare-uninstall", "--namespace", NAMESPACE)
        assert "node-1" in said
        assert "gpushare.dev/release" not in nodes.state("node-1")["metadata"].get("annotations", {})
        assert nodes.phase("asleep") == "Running"
        assert nodes.offer("node-1") == {SEVEN: 14}
    finally:
        nodes.dismiss("asleep")
    # Helm takes no upgrade any more, the release being in the midst of its end: it is to be ended again.
    refused = nodes.release.try_helm("upgrade", "gpushare", str(nodes.compile(intent(training=FAST)) / "chart"))
    assert refused.returncode != 0
    # Once, and in the release's minute, which is long enough on a busy machine too.
    nodes.release.uninstall()
    nodes.await_no_trace(KEPT)


def sync(cluster_fixture: ClusterFixture, bundle: Path) -> list[Any]:
    """As Argo CD syncs: `helm template`, server-side apply with force, in its own name; what is gone is pruned."""
    text = rendered(bundle, *IMAGE)
    objects = [one for one in yaml.safe_load_all(text) if one and "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    for one in objects:
        one["metadata"].setdefault("labels", {})["app.kubernetes.io/instance"] = "argo"
    kept = {(one["kind"], one["metadata"]["name"]) for one in objects}
    cluster_fixture.cluster.kubectl(
        "apply",
        "--server-side",
        "--force-conflicts",
        "--field-manager=argocd-controller",
        "--filename",
        "-",
        stdin=yaml.safe_dump_all(objects),
    )
    for kind in ("daemonset", "configmap", "resourcequota"):
        for one in cluster_fixture.cluster.get(kind, "--all-namespaces", "--selector", "app.kubernetes.io/instance=argo")[
            "items"
        ]:
            if (one["kind"], one["metadata"]["name"]) not in kept:
                cluster_fixture.cluster.kubectl(
                    "delete", kind, one["metadata"]["name"], "--namespace", one["metadata"]["namespace"]
                )
    return objects


def test_argo_cd_syncs_twice_without_a_difference_and_prunes_a_pool(nodes: ClusterFixture) -> None:
    nodes.choose(node_2="other")
    bundle = nodes.compile(intent(training=FAST, other=slicing(4)))
    objects = sync(nodes, bundle)
    try:
        await_offers(nodes, {SEVEN: 14}, ("node-1",))
        await_offers(nodes, {SHARED: 8}, ("node-2",))
        before = versions(nodes.cluster)
        sync(nodes, bundle)
        assert versions(nodes.cluster) == before
        sync(nodes, nodes.compile(intent(training=FAST)))
        nodes.cluster.wait(lambda: "gpushare.dev/pool" not in nodes.labels("node-2"), "node-2 is released")
        assert nodes.offer("node-1") == {SEVEN: 14}
    finally:
        nodes.cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=yaml.safe_dump_all(objects))
