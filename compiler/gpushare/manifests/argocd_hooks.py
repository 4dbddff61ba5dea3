"""What Argo CD runs beside the objects of `compile --manifests`: a test of the shares after a sync, and the release of nodes.

An Application whose source is a plugin gets no chart, so nothing of Helm's hooks. Repeats the templates `tests/` and
`uninstall/` as `release` repeats the others; the test pods are Jobs here, because Argo CD judges those by how they end.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gpushare.core.units import parse_duration
from gpushare.manifests import rights
from gpushare.manifests.release import POOL, ChartObjects, Object
from gpushare.manifests.rights import UNINSTALL, rule

_ANNOTATION = "argocd.argoproj.io/hook"
_TEST_SECONDS = 300
"""A pool whose shares are all in use must not hold the sync, which the next commit waits for."""
_TEST_POLICY = "BeforeHookCreation,HookSucceeded"
_HARMLESS = {
    "allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": True,
}
_NOBODY = {"runAsGroup": 65532, "runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}}


def objects(chart: ChartObjects, wanted: Iterable[str], tested: Iterable[str]) -> Iterator[Object]:
    """Yield the hooks of `wanted`: `test`, `uninstall`. `tested`: the pools of which a share may be taken for the test."""
    if "test" in wanted and not chart.observes:
        for name in tested:
            yield _test(chart, name, chart.pools[name])
    if "uninstall" in wanted and chart.pools and chart.values["uninstall"]["release"]:
        yield from rights.release(chart.namespace, observes=chart.observes, stays=True)
        yield from _after_deletion(_release_by_job(chart) if chart.observes else _release_by_nodes(chart))


def as_source(objects: Iterable[Mapping[str, Any]]) -> Iterator[Object]:
    """Yield the objects as the source of an Application: it never deletes the namespace, which other objects may be in."""
    stays = {"argocd.argoproj.io/sync-options": "Delete=false,Prune=false"}
    for one in objects:
        yield _annotated(one, stays) if one["kind"] == "Namespace" else dict(one)


def _annotated(item: Mapping[str, Any], annotations: Mapping[str, str]) -> Object:
    metadata = item["metadata"]
    return {**item, "metadata": {**metadata, "annotations": {**metadata.get("annotations", {}), **annotations}}}


def _after_deletion(hooks: Iterable[Object]) -> Iterator[Object]:
    for hook in hooks:
        yield _annotated(hook, {_ANNOTATION: "PostDelete", f"{_ANNOTATION}-delete-policy": "HookSucceeded"})


def _account(chart: ChartObjects, *rules: Object) -> Iterator[Object]:
    yield chart.item("v1", "ServiceAccount", UNINSTALL) | {"automountServiceAccountToken": False}
    yield from chart.role("Role", list(rules), UNINSTALL)


def _release_by_nodes(chart: ChartObjects) -> Iterator[Object]:
    """Yield the DaemonSet that is healthy when no node with a pool's label is left, and what it needs."""
    yield from _account(
        chart,
        rule("pods", "delete", "get"),
        rule("daemonsets", "get", group="apps"),
        rule("leases", "create", "delete", "get", "list", "update", group="coordination.k8s.io"),
    )
    yield chart.critical_pods(UNINSTALL)
    pod = chart.release_pod([{"key": POOL, "operator": "Exists"}], UNINSTALL)
    daemon_set = chart.daemon_set(UNINSTALL, {"app.kubernetes.io/component": "uninstall"}, {}, pod)
    daemon_set["spec"]["minReadySeconds"] = 2**31 - 1
    yield daemon_set


def _release_by_job(chart: ChartObjects) -> Iterator[Object]:
    """Yield the Job that removes what a bundle that observes wrote to the nodes, and what it needs."""
    yield from _account(chart, rule("daemonsets", "delete", "get", "list", group="apps"), rule("pods", "get", "list"))
    timeout = chart.values["uninstall"]["timeout"]
    go_on = ("--go-on",) if chart.values["uninstall"]["goOn"] else ()
    command = ("release", "--all-nodes", "--observed", "--timeout", timeout, *go_on)
    fields = {"POD_NAME": "metadata.name", "POD_UID": "metadata.uid", "POD_NAMESPACE": "metadata.namespace"}
    container = chart.container("release", *command) | {
        "env": [
            {"name": name, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": path}}} for name, path in fields.items()
        ],
        "securityContext": _HARMLESS,
    }
    pod = {
        "serviceAccountName": UNINSTALL, "automountServiceAccountToken": True, "enableServiceLinks": False,
        "restartPolicy": "Never", **chart.pull_secrets(), "tolerations": [{"operator": "Exists"}],
        "securityContext": _NOBODY, "containers": [container],
    }
    labels = {"app.kubernetes.io/component": "uninstall"}
    yield chart.item("batch/v1", "Job", UNINSTALL, labels=labels) | {"spec": {
        "activeDeadlineSeconds": 210 + int(parse_duration(timeout) or 0), "backoffLimit": 0,
        "template": {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare", **labels}}, "spec": pod},
    }}


def _test(chart: ChartObjects, name: str, pool: Mapping[str, Any]) -> Object:
    """Return the Job that takes a share of each resource of a pool, and fails where its container sees no device."""
    containers = [_share(chart, number, resource) for number, resource in enumerate(pool["resources"])]
    pod = {
        "automountServiceAccountToken": False, "enableServiceLinks": False, "restartPolicy": "Never",
        "nodeSelector": {POOL: name}, **chart.runtime_class(), **chart.pull_secrets(),
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}, *pool.get("tolerations", ())],
        "securityContext": _NOBODY, "containers": containers,
    }
    labels = {"app.kubernetes.io/component": "test"}
    job = chart.item("batch/v1", "Job", f"gpushare-test-{name}", labels=labels)
    spec = {
        "activeDeadlineSeconds": _TEST_SECONDS, "backoffLimit": 0,
        "template": {"metadata": {"labels": {"app.kubernetes.io/name": "gpushare", **labels}}, "spec": pod},
    }
    return _annotated(job | {"spec": spec}, {_ANNOTATION: "PostSync", f"{_ANNOTATION}-delete-policy": _TEST_POLICY})


def _share(chart: ChartObjects, number: int, resource: str) -> Object:
    container = chart.container(f"share-{number}", "export") | {"securityContext": _HARMLESS}
    container["resources"]["limits"][resource] = 1
    return container
