"""Uninstall: every node is asked to let go, then the DaemonSets are deleted. For the chart's Job, before Helm removes the rest.

Sets and clears two annotations of nodes and deletes our DaemonSets; the hardware is the business of the runtime on each node,
which is why that must still run. Nothing of a node's own is touched from here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from gpushare_node.clock import Clock
from gpushare_node.kube.cluster import (
    NOT_READY_TAINT,
    POOL_LABEL,
    RELEASE_ANNOTATION,
    RELEASED_ANNOTATION,
    REPARTITIONING_TAINT,
    ClusterError,
    NodeView,
)
from gpushare_node.kube.connection import MERGE_PATCH, Connection, Json, Request
from gpushare_node.kube.views import view_node

REQUESTED = "requested"
POLL_SECONDS = 5.0
ENDING_SECONDS = 90.0
"""The pods' own grace is 60 seconds. The Job's deadline must leave room for both waits."""

_OURS = "app.kubernetes.io/name=gpushare"
_COMPONENT = "app.kubernetes.io/component"
_COMPONENTS = frozenset({"node", "release"})
_TAINTS = frozenset({NOT_READY_TAINT, REPARTITIONING_TAINT})


@dataclass(frozen=True, kw_only=True)
class Farewell:
    """How it went. `silent`: nodes that did not answer in time; `remaining`: runtime pods that did not end in time.

    `is_done`: all have answered, or it was told to go on, and the DaemonSets and annotations are gone. Else all is as before.
    """

    is_done: bool
    released: tuple[str, ...]
    silent: tuple[str, ...]
    remaining: tuple[str, ...] = ()


class Uninstall:
    """One uninstallation of the release in this namespace."""

    def __init__(self, connection: Connection, namespace: str, clock: Clock, say: Callable[[str], None]) -> None:
        self._connection = connection
        self._namespace = namespace
        self._clock = clock
        self._say = say
        self._asked: dict[str, bool] = {}
        """The nodes that were asked, and whether they have answered."""

    def run(self, *, timeout_seconds: float, goes_on: bool) -> Farewell:
        """Ask, wait, delete, clear. `goes_on`: also without the answer of all.

        ClusterError, when the API server cannot be used; the requests are taken back then too, as far as that goes.
        """
        deadline = self._clock.now() + timeout_seconds
        is_leaving = False
        try:
            silent = self._wait(deadline)
            if silent and not goes_on:
                return self._farewell(silent, is_done=False)
            is_leaving = True
            self._delete_daemonsets()
            remaining = self._wait_for_pods(self._clock.now() + ENDING_SECONDS)
            return self._farewell(silent, is_done=True, remaining=remaining)
        finally:
            self._clear(is_leaving=is_leaving)

    def _farewell(self, silent: tuple[str, ...], *, is_done: bool, remaining: tuple[str, ...] = ()) -> Farewell:
        released = tuple(sorted(node for node, has_answered in self._asked.items() if has_answered))
        return Farewell(is_done=is_done, released=released, silent=silent, remaining=remaining)

    def _wait(self, deadline: float) -> tuple[str, ...]:
        """Until every node has answered, or the time has passed; those that have not."""
        while True:
            silent = self._round()
            if not silent or self._clock.now() >= deadline:
                return silent
            self._say(f"waiting for {len(silent)} of {len(self._asked)} nodes: {', '.join(silent[:5])}")
            self._clock.sleep(POLL_SECONDS)

    def _round(self) -> tuple[str, ...]:
        """Look at all nodes of ours, ask those that have not been asked; the silent ones."""
        nodes = self._nodes()
        for name, node in nodes.items():
            if name not in self._asked and node is not None:
                # What an earlier uninstallation was answered is no answer to this one.
                self._annotate(name, {RELEASE_ANNOTATION: REQUESTED, RELEASED_ANNOTATION: None})
                self._asked[name] = False
            elif name in self._asked:
                self._asked[name] = node is None or _has_answered(node)
        return tuple(sorted(name for name, has_answered in self._asked.items() if not has_answered))

    def _nodes(self) -> Mapping[str, NodeView | None]:
        """Nodes with a pool's label, those with a pod of ours, and all that were asked; None: it is gone."""
        found = self._connection.get("/api/v1/nodes", {"labelSelector": POOL_LABEL}).get("items") or ()
        nodes: dict[str, NodeView | None] = {node.name: node for node in map(view_node, found)}
        # A node that is being brought to its layout for the first time has no label yet.
        silent = {name for name, has_answered in self._asked.items() if not has_answered}
        unasked = {str((pod.get("spec") or {}).get("nodeName") or "") for pod in self._pods()} - set(self._asked) - {""}
        return nodes | {name: self._node(name) for name in sorted((silent | unasked) - set(nodes))}

    def _node(self, name: str) -> NodeView | None:
        try:
            return view_node(self._connection.get(f"/api/v1/nodes/{name}"))
        except ClusterError as error:
            if error.status == 404:
                return None
            raise

    def _pods(self) -> list[Json]:
        return self._ours(f"/api/v1/namespaces/{self._namespace}/pods")

    def _ours(self, path: str) -> list[Json]:
        items = self._connection.get(path, {"labelSelector": _OURS}).get("items") or ()
        return [one for one in items if (one["metadata"].get("labels") or {}).get(_COMPONENT) in _COMPONENTS]

    def _delete_daemonsets(self) -> None:
        path = f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets"
        for one in self._ours(path):
            name = one["metadata"]["name"]
            self._say(f"deleting DaemonSet {name}")
            self._unless_gone(Request(method="DELETE", path=f"{path}/{name}", body={"propagationPolicy": "Foreground"}))

    def _wait_for_pods(self, deadline: float) -> tuple[str, ...]:
        """While a pod of ours runs, the request must stand: it would start to work again."""
        while True:
            names = tuple(sorted(str(pod["metadata"]["name"]) for pod in self._pods()))
            if not names or self._clock.now() >= deadline:
                return names
            self._clock.sleep(POLL_SECONDS)

    def _clear(self, *, is_leaving: bool) -> None:
        """Take the requests back; the answers too, unless the runtime stays and needs to see what it answered."""
        gone: dict[str, str | None] = {RELEASE_ANNOTATION: None}
        if is_leaving:
            gone[RELEASED_ANNOTATION] = None
        failed: ClusterError | None = None
        for name in self._asked:
            try:
                self._annotate(name, gone)
            except ClusterError as error:
                failed = error
        if failed is not None:
            raise failed

    def _annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        self._unless_gone(Request(method="PATCH", path=f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH))

    def _unless_gone(self, request: Request) -> None:
        try:
            self._connection.ask(request)
        except ClusterError as error:
            if error.status != 404:
                raise


def _has_answered(node: NodeView) -> bool:
    """It says so, or carries nothing of ours any more."""
    if RELEASED_ANNOTATION in node.annotations:
        return True
    return POOL_LABEL not in node.labels and not any(taint.key in _TAINTS for taint in node.taints)
