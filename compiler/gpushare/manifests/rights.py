"""Rules of roles, and the ClusterRole with which nodes are released after Argo CD has deleted the chart.

The chart cannot bring that role: Argo CD deletes it before the release begins, and finds no cluster-scoped hook again. It is
bound to a ServiceAccount that exists only while the hook runs.
"""

from collections.abc import Iterator
from typing import Any

UNINSTALL = "gpushare-uninstall"
"""The name of every object of the release."""

_RBAC = "rbac.authorization.k8s.io"


def rule(resource: str, *verbs: str, group: str = "") -> dict[str, Any]:
    """Return a rule of a role: these verbs on one resource."""
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def release(namespace: str, *, observes: bool, stays: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the role and its binding. `stays`: the Application that has them must not delete them, because it has the hook too.

    No pod is evicted: without the ConfigMap `gpushare-tenancy` it is unknown which may be.
    """
    rules = [rule("nodes", "get", "list"), rule("nodes/status", "patch")] if observes else [
        rule("nodes", "get", "list", "patch", "watch"), rule("nodes/status", "patch"), rule("pods", "list", "watch"),
        rule("events", "create", "patch"),
    ]
    metadata: dict[str, Any] = {"name": UNINSTALL}
    if stays:
        metadata["annotations"] = {"argocd.argoproj.io/sync-options": "Delete=false"}
    yield {"apiVersion": f"{_RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules}
    yield {
        "apiVersion": f"{_RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": UNINSTALL},
        "subjects": [{"kind": "ServiceAccount", "name": UNINSTALL, "namespace": namespace}],
    }
