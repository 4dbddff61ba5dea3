"""Requests to release a node: the annotation that the uninstall Job writes, and whether who wrote it still lives.

A request names a pod by name and uid, and holds while that pod may still run. So one that was broken off, by Helm or with the
node it ran on, poisons no later installation, and no clocks are compared.
"""

import re

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.adapters.kube.pod_identity import PodIdentity

_NAME = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}")
"""A pod's; whatever else stands there would ask the API server for something else."""
_ENDED = frozenset({"Succeeded", "Failed"})


def request_of(identity: PodIdentity) -> str:
    """What this program's own pod asks by."""
    return f"{identity.pod}/{identity.pod_uid}"


def is_standing(connection: Connection, namespace: str, request: str) -> bool:
    """Whether the pod that asks may still run. ClusterError."""
    name, _, uid = request.partition("/")
    if not uid or not _NAME.fullmatch(name):
        return False
    try:
        pod = connection.get(f"/api/v1/namespaces/{namespace}/pods/{name}")
    except ClusterError as error:
        if error.status == 404:
            return False
        raise
    has_ended = (pod.get("status") or {}).get("phase") in _ENDED or "deletionTimestamp" in pod["metadata"]
    return pod["metadata"]["uid"] == uid and not has_ended
