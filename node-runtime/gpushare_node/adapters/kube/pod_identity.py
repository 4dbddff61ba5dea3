"""PodIdentity: this program's node, namespace, pod and pool, from its pod's environment; and what an uninstall Job's pod is.

A request to leave the pool, which the uninstall Job writes as an annotation, contains a pod's name and uid, and is in force
while that pod may still run. So an uninstallation that was aborted, by Helm or with its node, does not affect a later
installation, and no clocks are compared.
"""

import re
import socket
from collections.abc import Mapping

from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.contract.names import workload
from gpushare_node.contract.struct import Struct


class PodIdentity(Struct):
    """`pod` and `pod_uid` are empty in runs by hand; `pool` is empty if no pool's policy is in force."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    pool: str

    @property
    def node_path(self) -> str:
        """Return the path of this node."""
        return f"/api/v1/nodes/{self.node}"

    @property
    def workload(self) -> str:
        """Return this program's DaemonSet, as the chart names it: the pool's, or the one for pools that no longer exist."""
        return workload(self.pool)

    @property
    def daemonset_path(self) -> str:
        """Return the path of that DaemonSet."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{self.workload}"


def find_identity(environ: Mapping[str, str], pool: str) -> PodIdentity:
    """Return the identity from the pod's environment, for this pool; in runs by hand, the node's name is this host's."""
    return PodIdentity(
        node=environ.get("NODE_NAME") or socket.gethostname().lower(),
        namespace=environ.get("POD_NAMESPACE") or "gpushare",
        pod=environ.get("POD_NAME") or "",
        pod_uid=environ.get("POD_UID") or "",
        pool=pool,
    )


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
