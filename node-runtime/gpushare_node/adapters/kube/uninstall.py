"""Uninstall: every node is asked to let go, then the DaemonSets are deleted. For the chart's Job, before Helm removes the rest.

Sets and clears two annotations of nodes and deletes our DaemonSets; the hardware is the business of the runtime on each node,
which is why that must still run. Nothing of a node's own is touched from here. A request names the Job's pod, and holds as long
as that lives: an uninstallation that was broken off, rights and all, asks nobody any more. However large the cluster, one page
of it is in memory.
"""

from collections.abc import Callable, Iterator, Mapping

from gpushare_node.adapters.kube.cluster import (
    NOT_READY_TAINT,
    POOL_LABEL,
    RELEASE_ANNOTATION,
    RELEASED_ANNOTATION,
    REPARTITIONING_TAINT,
    ClusterError,
)
from gpushare_node.adapters.kube.connection import MERGE_PATCH, METADATA, METADATA_LIST, Connection, Json, Request
from gpushare_node.adapters.kube.views import view_node
from gpushare_node.core.clock import Clock
from gpushare_node.core.structs import Struct

POLL_SECONDS = 5.0
ENDING_SECONDS = 90.0
"""The pods' own grace is 60 seconds. The Job's deadline must leave room for both waits."""

_OURS = "app.kubernetes.io/name=gpushare"
_COMPONENT = "app.kubernetes.io/component"
_COMPONENTS = frozenset({"node", "release"})
_TAINTS = frozenset({NOT_READY_TAINT, REPARTITIONING_TAINT})
_NO_RIGHT = frozenset({401, 403})
"""Helm has given up, and taken the Job's rights away. They do not come back."""


class UninstallReport(Struct):
    """How it went. `silent`: nodes that did not answer in time; `remaining`: runtime pods that did not end in time.

    `is_done`: all have answered, or it was told to go on, and the DaemonSets and annotations are gone. Else all is as before.
    `is_replaced`: it was not done, since the release was installed anew meanwhile.
    """

    is_done: bool
    released: tuple[str, ...]
    silent: tuple[str, ...]
    remaining: tuple[str, ...] = ()
    is_replaced: bool = False


class Uninstall:
    """One uninstallation of the release in this namespace. `request` is what nodes are asked by: see `requests.request_of`."""

    def __init__(
        self, connection: Connection, namespace: str, request: str, clock: Clock, say: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._request = request
        self._clock = clock
        self._say = say
        self._asked: dict[str, bool] = {}
        """The nodes that were asked, and whether they have answered."""
        self._daemonsets: Mapping[str, str] = {}
        """What is uninstalled: the uids of our DaemonSets, by name."""

    def run(self, *, timeout_seconds: float, goes_on: bool) -> UninstallReport:
        """Ask, wait, delete, clear. `goes_on`: also without the answer of all.

        ClusterError, when the API server cannot be used; the requests are taken back then too, as far as that goes.
        """
        deadline = self._clock.now() + timeout_seconds
        is_leaving = False
        try:
            self._daemonsets = self._find_daemonsets()
            silent = self._wait(deadline)
            if self._is_replaced():
                return self._farewell(silent, is_done=False, is_replaced=True)
            if silent and not goes_on:
                return self._farewell(silent, is_done=False)
            is_leaving = True
            self._delete_daemonsets()
            remaining = self._wait_for_pods(self._clock.now() + ENDING_SECONDS)
            return self._farewell(silent, is_done=True, remaining=remaining)
        finally:
            self._clear(is_leaving=is_leaving)

    def _farewell(
        self, silent: tuple[str, ...], *, is_done: bool, remaining: tuple[str, ...] = (), is_replaced: bool = False,
    ) -> UninstallReport:
        released = tuple(sorted(node for node, has_answered in self._asked.items() if has_answered))
        return UninstallReport(is_done=is_done, released=released, silent=silent, remaining=remaining, is_replaced=is_replaced)

    def _wait(self, deadline: float) -> tuple[str, ...]:
        """Until every node has answered, the time has passed, or it is no more the release that was there; the silent ones."""
        while True:
            silent = self._look(deadline)
            if silent is not None and (not silent or self._clock.now() >= deadline or self._is_replaced()):
                return silent
            self._clock.sleep(POLL_SECONDS)

    def _look(self, deadline: float) -> tuple[str, ...] | None:
        """The silent nodes; None where the API server does not say, which may pass."""
        try:
            silent = self._round()
        except ClusterError as error:
            if error.status in _NO_RIGHT or self._clock.now() >= deadline:
                raise
            self._say(f"looking again: {error}")
            return None
        if silent:
            self._say(f"waiting for {len(silent)} of {len(self._asked)} nodes: {', '.join(silent[:5])}")
        return silent

    def _round(self) -> tuple[str, ...]:
        """Look at all nodes of ours, ask those that have not been asked; the silent ones."""
        is_first, labelled = not self._asked, set()
        for node in map(view_node, self._connection.pages("/api/v1/nodes", {"labelSelector": POOL_LABEL}, METADATA_LIST)):
            labelled.add(node.name)
            if node.name in self._asked:
                self._asked[node.name] = RELEASED_ANNOTATION in node.annotations
            else:
                self._ask(node.name)
        for name in set(self._silent()) - labelled:
            self._asked[name] = self._has_let_go(name)
        if is_first or not self._silent():
            # A node that is being brought to its layout for the first time has no label yet.
            for name in sorted(self._hosts() - set(self._asked)):
                self._ask(name)
        return self._silent()

    def _silent(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, has_answered in self._asked.items() if not has_answered))

    def _ask(self, name: str) -> None:
        # What an earlier uninstallation was answered is no answer to this one.
        self._annotate(name, {RELEASE_ANNOTATION: self._request, RELEASED_ANNOTATION: None})
        self._asked[name] = False

    def _has_let_go(self, name: str) -> bool:
        """Whether a node without a pool's label says so, carries nothing of ours any more, or is no more."""
        try:
            node = view_node(self._connection.get(f"/api/v1/nodes/{name}"))
        except ClusterError as error:
            if error.status == 404:
                return True
            raise
        is_marked = POOL_LABEL in node.labels or any(taint.key in _TAINTS for taint in node.taints)
        return RELEASED_ANNOTATION in node.annotations or not is_marked

    def _hosts(self) -> set[str]:
        """The nodes that have a pod of ours."""
        return {str((pod.get("spec") or {}).get("nodeName") or "") for pod in self._ours("pods")} - {""}

    def _ours(self, kind: str, accept: str = "application/json") -> Iterator[Json]:
        group = "api/v1" if kind == "pods" else "apis/apps/v1"
        path = f"/{group}/namespaces/{self._namespace}/{kind}"
        for one in self._connection.pages(path, {"labelSelector": _OURS}, accept):
            if (one["metadata"].get("labels") or {}).get(_COMPONENT) in _COMPONENTS:
                yield one

    def _find_daemonsets(self) -> Mapping[str, str]:
        return {one["metadata"]["name"]: one["metadata"]["uid"] for one in self._ours("daemonsets", METADATA_LIST)}

    def _is_replaced(self) -> bool:
        """Whether there are others of our DaemonSets now: those are of a release that nobody wants to uninstall."""
        return not self._find_daemonsets().items() <= self._daemonsets.items()

    def _delete_daemonsets(self) -> None:
        for name, uid in self._daemonsets.items():
            self._say(f"deleting DaemonSet {name}")
            path = f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets/{name}"
            options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
            self._unless_gone(Request(method="DELETE", path=path, body=options))

    def _wait_for_pods(self, deadline: float) -> tuple[str, ...]:
        """While a pod of ours runs, the request must stand: it would start to work again."""
        while True:
            names = tuple(sorted(str(pod["metadata"]["name"]) for pod in self._ours("pods", METADATA_LIST)))
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
                if error.status in _NO_RIGHT:
                    # The nodes see themselves that nobody asks any more.
                    break
        if failed is not None:
            raise failed

    def _annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        request = Request(method="PATCH", path=f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH, accept=METADATA)
        self._unless_gone(request)

    def _unless_gone(self, request: Request) -> None:
        try:
            self._connection.ask(request)
        except ClusterError as error:
            if error.status not in {404, 409}:
                raise
