"""PodIdentity: this program's node, namespace, pod and pool, from its pod's environment. Values only."""

import socket
from collections.abc import Mapping

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
        return f"gpushare-{self.pool or 'release'}"

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
