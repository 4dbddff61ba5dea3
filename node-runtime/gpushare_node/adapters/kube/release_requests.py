"""Requests to leave the pool: the annotation that the uninstall Job writes, and whether that Job's pod may still run.

A request contains a pod's name and uid, and is in force while that pod may still run. So an uninstallation that was aborted, by
Helm or with its node, does not affect a later installation, and no clocks are compared.
"""

import re

from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.pod_identity import PodIdentity

_NAME = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")
"""A pod's name; any other text would change the path of the request to the API server."""
_ENDED = frozenset({"Succeeded", "Failed"})


def request_of(identity: PodIdentity) -> str:
    """Return the value of a request by this program's own pod."""
    return f"{identity.pod}/{identity.pod_uid}"


def is_active(connection: Connection, namespace: str, request: str) -> bool:
    """Whether the pod that wrote the request may still run. ClusterError."""
    name, _, uid = request.partition("/")
    if not uid or not _NAME.fullmatch(name):
        return False
    pod = connection.find(f"/api/v1/namespaces/{namespace}/pods/{name}")
    if pod is None:
        return False
    has_ended = (pod.get("status") or {}).get("phase") in _ENDED or "deletionTimestamp" in pod["metadata"]
    return pod["metadata"]["uid"] == uid and not has_ended
