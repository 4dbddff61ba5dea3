"""ObservedNode: this node for a runtime that only observes. It reads, and makes exactly one kind of write.

That write is a patch of the node's status with our condition and the annotation `gpushare.dev/would`. Kubernetes ignores the
spec in such a patch, so it cannot set a taint, whatever it contains; and the token has no right to another write.
"""

from gpushare_node.adapters.kube.cluster import WOULD_ANNOTATION, NodeView, PodView
from gpushare_node.adapters.kube.connection import STRATEGIC_PATCH, Connection, Json, Request
from gpushare_node.adapters.kube.node_client import MAX_MESSAGE, WRITER, condition_of, find_condition
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.adapters.kube.views import view_node, view_pod
from gpushare_node.contract.struct import Struct
from gpushare_node.reporting.reasons import CONDITION, ConditionReason


class ObservedNode(Struct):
    """The runtime's node and its pods. Every method can raise ClusterError."""

    connection: Connection
    identity: PodIdentity

    def node(self) -> NodeView:
        """Read this node. Unlike `NodeClient.node` it removes nothing."""
        return view_node(self.connection.get(self.identity.node_path))

    def pods(self) -> tuple[PodView, ...]:
        """Read the pods of this node, in any phase."""
        found = self.connection.get("/api/v1/pods", {"fieldSelector": f"spec.nodeName={self.identity.node}"})
        return tuple(view_pod(pod) for pod in found.get("items") or ())

    def publish(self, reason: ConditionReason, message: str, would: str) -> bool:
        """Set the condition and the annotation in one request. Writes nothing, and returns False, if the node has both."""
        node = self.connection.get(self.identity.node_path)
        before = find_condition(node)
        after = condition_of((reason, message[:MAX_MESSAGE]), reason.value.is_ready)
        is_told = all(before.get(key) == value for key, value in after.items() if key != "lastHeartbeatTime")
        if is_told and view_node(node).annotations.get(WOULD_ANNOTATION) == would:
            return False
        is_as_before = before.get("status") == after["status"]
        since = (before.get("lastTransitionTime") if is_as_before else None) or after["lastHeartbeatTime"]
        patch_status(self.connection, self.identity.node_path, would, {**after, "lastTransitionTime": since})
        return True


def forget(connection: Connection, node: Json) -> bool:
    """Remove the condition and the annotation from any node; return whether it had one of them. ClusterError."""
    view = view_node(node)
    if WOULD_ANNOTATION not in view.annotations and not find_condition(node):
        return False
    patch_status(connection, f"/api/v1/nodes/{view.name}", None, {"type": CONDITION, "$patch": "delete"})
    return True


def patch_status(connection: Connection, path: str, would: str | None, condition: Json) -> None:
    """Write the annotation (None removes it) and the condition. ClusterError."""
    body = {"metadata": {"annotations": {WOULD_ANNOTATION: would}}, "status": {"conditions": [condition]}}
    connection.ask(
        Request(
            method="PATCH",
            path=f"{path}/status",
            query={"fieldManager": WRITER},
            body=body,
            content_type=STRATEGIC_PATCH,
        )
    )
