"""PodIdentity: who this program is in the cluster, from what its pod's environment says. Values only."""

import socket
from collections.abc import Mapping

from gpushare_node.core.structs import Struct


class PodIdentity(Struct):
    """`pod` and `pod_uid` are empty for work by hand; `pool` is empty where no pool's policy is in force."""

    node: str
    namespace: str
    pod: str
    pod_uid: str
    pool: str

    @property
    def node_path(self) -> str:
        """The own node."""
        return f"/api/v1/nodes/{self.node}"

    @property
    def workload(self) -> str:
        """The DaemonSet that this program is of, as the chart names it: the pool's, or the one for pools that are gone."""
        return f"gpushare-{self.pool or 'release'}"

    @property
    def daemonset_path(self) -> str:
        """Where that is."""
        return f"/apis/apps/v1/namespaces/{self.namespace}/daemonsets/{self.workload}"


def find_place(environ: Mapping[str, str], pool: str) -> PodIdentity:
    """The place that the pod's environment tells, for the pool of that name; by hand, on the node of this host's name."""
    return PodIdentity(
        node=environ.get("NODE_NAME") or socket.gethostname().lower(),
        namespace=environ.get("POD_NAMESPACE") or "gpushare",
        pod=environ.get("POD_NAME") or "",
        pod_uid=environ.get("POD_UID") or "",
        pool=pool,
    )
