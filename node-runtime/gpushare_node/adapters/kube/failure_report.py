"""FailureReport: the condition of the pool's DaemonSet that says on which node its policy fails, and why.

A DaemonSet's numbers are the same for a node that waits and for one that has failed. The condition's type has the policy,
`GPUShareReady.<digest>`, so a condition of an earlier policy no longer counts. Any node that fails may set it, and only the one
that it names removes it. The controller of DaemonSets leaves conditions as they are.
"""

from collections.abc import Iterator

from gpushare_node.adapters.kube.connection import STRATEGIC_PATCH, Connection, Json, Request
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.core.clock import timestamp
from gpushare_node.reporting.reasons import CONDITION, ConditionReason

POLICY_ANNOTATION = "gpushare.dev/policy"
"""Of the DaemonSet's pods: the digest of the policy."""
_PREFIX = f"{CONDITION}."


class FailureReport:
    """The condition, as this node may write it."""

    def __init__(self, connection: Connection, identity: PodIdentity, writer: str) -> None:
        self._connection = connection
        self._path = identity.daemonset_path
        self._node = f"node {identity.node}: "
        self._writer = writer

    def report(self, reason: ConditionReason, message: str) -> None:
        """Set the condition for this node, unless it names another node. Raises ClusterError."""
        daemonset = self._read()
        policy = _policy(daemonset)
        if not policy:
            return
        kind, there = f"{_PREFIX}{policy}", {condition["type"]: condition for condition in _conditions(daemonset)}
        condition = {"type": kind, "status": "False", "reason": reason.word, "message": f"{self._node}{message}"}
        before = there.pop(kind, None)
        if before is not None and (not self._is_own(before) or before.items() >= condition.items()):
            return
        self._write([{**condition, "lastTransitionTime": timestamp()}, *map(_deletion, there)])

    def withdraw(self) -> None:
        """Remove every such condition that names this node. Raises ClusterError."""
        own = [condition["type"] for condition in _conditions(self._read()) if self._is_own(condition)]
        if own:
            self._write([_deletion(kind) for kind in own])

    def _is_own(self, condition: Json) -> bool:
        return str(condition.get("message", "")).startswith(self._node)

    def _read(self) -> Json:
        """Read the DaemonSet; empty if there is none, as after a run by hand or during the release of the nodes."""
        return self._connection.find(self._path) or {}

    def _write(self, conditions: list[Json]) -> None:
        self._connection.ask(
            Request(
                method="PATCH",
                path=f"{self._path}/status",
                query={"fieldManager": self._writer},
                body={"status": {"conditions": conditions}},
                content_type=STRATEGIC_PATCH,
            )
        )


def _conditions(daemonset: Json) -> Iterator[Json]:
    found = (daemonset.get("status") or {}).get("conditions") or ()
    return (one for one in found if one["type"].startswith(_PREFIX))


def _policy(daemonset: Json) -> str:
    """Return the digest of the policy that the DaemonSet's pods bring to their nodes; empty if it has none."""
    template = (daemonset.get("spec") or {}).get("template") or {}
    return str(((template.get("metadata") or {}).get("annotations") or {}).get(POLICY_ANNOTATION, ""))


def _deletion(kind: str) -> Json:
    return {"type": kind, "$patch": "delete"}
