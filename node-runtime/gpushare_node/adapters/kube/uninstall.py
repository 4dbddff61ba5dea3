"""Uninstall: requests every node's release, then deletes the DaemonSets. For the chart's Job, before Helm removes the rest.

It sets and clears two annotations of nodes and deletes our DaemonSets; the runtime on each node releases the hardware, which is
why it must still run. The Job changes nothing else on a node. A request contains the Job's pod, and is in force while that may
run: an uninstallation that was aborted, and lost its permissions too, no longer requests anything. However large the cluster,
only one page of it is in memory.
"""

from collections.abc import Callable, Iterator, Mapping

from gpushare_node.adapters.kube.cluster import CHANGE_TAINTS, ClusterError
from gpushare_node.adapters.kube.connection import (
    CONFLICT,
    MERGE_PATCH,
    METADATA,
    METADATA_LIST,
    NOT_FOUND,
    ApiRequest,
    Connection,
    Json,
)
from gpushare_node.adapters.kube.node_client import forget
from gpushare_node.adapters.kube.views import view_node
from gpushare_node.contract.names import BACKEND_LABEL, NOT_READY_TAINTS, POOL_LABEL, RELEASE_ANNOTATION, RELEASED_ANNOTATION
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock

POLL_SECONDS = 5.0
ENDING_SECONDS = 90.0
"""The pods' own grace is 60 seconds. The Job's deadline must leave room for both waits."""

_OURS = "app.kubernetes.io/name=gpushare"
_COMPONENT = "app.kubernetes.io/component"
_COMPONENTS = frozenset({"node", "release"})
_TEMPLATES = "resourceclaimtemplates"
_TAINTS = frozenset({*NOT_READY_TAINTS, *CHANGE_TAINTS})
_NO_RIGHT = frozenset({401, 403})
"""Helm has given up, and has deleted the Job's permissions. They do not come back."""
_MAX_REFUSALS = 1
"""In a row: an API server that has just started refuses everything until it has read its roles, within a poll."""


class UninstallReport(Struct):
    """The result. `silent`: nodes that did not answer in time; `remaining`: runtime pods that did not end in time.

    `is_done`: all nodes answered, or `goes_on` was set, and the DaemonSets and annotations are gone. Else all is as before.
    `is_replaced`: it was not done, because the release was installed again meanwhile.
    """

    is_done: bool
    released: tuple[str, ...]
    silent: tuple[str, ...]
    remaining: tuple[str, ...] = ()
    is_replaced: bool = False


class Uninstall:
    """One uninstallation of the release in this namespace. `request` is the annotation's value: see `requests.request_of`."""

    def __init__(
        self,
        connection: Connection,
        namespace: str,
        request: str,
        clock: Clock,
        say: Callable[[str], None],
    ) -> None:
        self._connection = connection
        self._namespace = namespace
        self._request = request
        self._clock = clock
        self._progress = say
        self._refusals = 0
        self._has_left: dict[str, bool] = {}
        """The nodes that were sent a request, and whether they have answered."""
        self._daemonsets: Mapping[str, str] = {}
        """The release that is uninstalled: the uids of our DaemonSets, by name."""

    def run(self, *, timeout_seconds: float, goes_on: bool) -> UninstallReport:
        """Request, wait, delete, clear. `goes_on`: continue even if not every node answers.

        ClusterError if the API server cannot be used; the requests are removed then too, as far as possible.
        """
        deadline = self._clock.now() + timeout_seconds
        is_leaving = False
        try:
            self._daemonsets = self._find_daemonsets()
            silent = self._wait(deadline)
            if self._is_replaced():
                return self._report(silent, is_done=False, is_replaced=True)
            if silent and not goes_on:
                return self._report(silent, is_done=False)
            is_leaving = True
            self._delete_daemonsets()
            remaining = self._wait_for_pods(self._clock.now() + ENDING_SECONDS)
            return self._report(silent, is_done=True, remaining=remaining)
        finally:
            self._clear(is_leaving=is_leaving)

    def forget(self) -> UninstallReport:
        """Delete the DaemonSets, then remove what a runtime that only observed has written on nodes. ClusterError.

        A node that refuses, or that goes meanwhile, does not keep the others from being cleaned.
        """
        self._daemonsets = self._find_daemonsets()
        self._delete_daemonsets()
        remaining = self._wait_for_pods(self._clock.now() + ENDING_SECONDS)
        cleaned, failed = [], []
        for node in self._connection.pages("/api/v1/nodes", {}):
            name = str(node["metadata"]["name"])
            try:
                if forget(self._connection, node):
                    cleaned.append(name)
            except ClusterError as error:
                if error.status in _NO_RIGHT:
                    raise
                if error.status != NOT_FOUND:
                    failed.append(name)
        return UninstallReport(
            is_done=not failed, released=tuple(sorted(cleaned)), silent=tuple(sorted(failed)), remaining=remaining
        )

    def delete_templates(self) -> None:
        """Delete the release's ResourceClaimTemplates, in every namespace: they are hooks, which Helm leaves. ClusterError."""
        self._progress("deleting ResourceClaimTemplates")
        group = "/apis/resource.k8s.io/v1"
        for one in self._connection.pages(f"{group}/{_TEMPLATES}", {"labelSelector": _OURS}, METADATA_LIST):
            path = f"{group}/namespaces/{one['metadata']['namespace']}/{_TEMPLATES}/{one['metadata']['name']}"
            self._unless_gone(ApiRequest(method="DELETE", path=path))

    def _report(
        self,
        silent: tuple[str, ...],
        *,
        is_done: bool,
        remaining: tuple[str, ...] = (),
        is_replaced: bool = False,
    ) -> UninstallReport:
        released = tuple(sorted(node for node, has_left in self._has_left.items() if has_left))
        return UninstallReport(is_done=is_done, released=released, silent=silent, remaining=remaining, is_replaced=is_replaced)

    def _wait(self, deadline: float) -> tuple[str, ...]:
        """Wait until every node has answered, the time is up, or the release was replaced; return the silent nodes."""
        while True:
            silent = self._look(deadline)
            if silent is not None and (not silent or self._clock.now() >= deadline or self._is_replaced()):
                return silent
            self._clock.sleep(POLL_SECONDS)

    def _look(self, deadline: float) -> tuple[str, ...] | None:
        """Return the silent nodes; None if the API server fails, which may be transient."""
        try:
            silent = self._round()
        except ClusterError as error:
            self._refusals = self._refusals + 1 if error.status in _NO_RIGHT else 0
            if self._refusals > _MAX_REFUSALS or self._clock.now() >= deadline:
                raise
            self._progress(f"retrying: {error}")
            return None
        self._refusals = 0
        if silent:
            self._progress(f"waiting for {len(silent)} of {len(self._has_left)} nodes: {', '.join(silent[:5])}")
        return silent

    def _round(self) -> tuple[str, ...]:
        """Read all our nodes, send the request to those that do not have it yet, and return the silent ones."""
        is_first, labelled = not self._has_left, set()
        for node in map(view_node, self._connection.pages("/api/v1/nodes", {"labelSelector": POOL_LABEL}, METADATA_LIST)):
            labelled.add(node.name)
            if node.name in self._has_left:
                self._has_left[node.name] = RELEASED_ANNOTATION in node.annotations
            else:
                self._ask(node.name)
        for name in set(self._silent()) - labelled:
            self._has_left[name] = self._is_released(name)
        if is_first or not self._silent():
            # A node that is being partitioned for the first time has no label yet.
            for name in sorted(self._hosts() - set(self._has_left)):
                self._ask(name)
        return self._silent()

    def _silent(self) -> tuple[str, ...]:
        return tuple(sorted(name for name, has_left in self._has_left.items() if not has_left))

    def _ask(self, name: str) -> None:
        # An answer to an earlier uninstallation is not an answer to this one.
        self._annotate(name, {RELEASE_ANNOTATION: self._request, RELEASED_ANNOTATION: None})
        self._has_left[name] = False

    def _is_released(self, name: str) -> bool:
        """Whether a node without a pool's label has answered, has nothing of ours any more, or no longer exists."""
        found = self._connection.find(f"/api/v1/nodes/{name}")
        if found is None:
            return True
        node = view_node(found)
        is_marked = node.labels.keys() & {POOL_LABEL, BACKEND_LABEL} or any(taint.key in _TAINTS for taint in node.taints)
        return RELEASED_ANNOTATION in node.annotations or not is_marked

    def _hosts(self) -> set[str]:
        """Return the nodes that have one of our pods."""
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
        """Whether there are other DaemonSets of ours now: they belong to a release that must not be uninstalled."""
        return not self._find_daemonsets().items() <= self._daemonsets.items()

    def _delete_daemonsets(self) -> None:
        for name, uid in self._daemonsets.items():
            self._progress(f"deleting DaemonSet {name}")
            path = f"/apis/apps/v1/namespaces/{self._namespace}/daemonsets/{name}"
            options = {"propagationPolicy": "Foreground", "preconditions": {"uid": uid}}
            self._unless_gone(ApiRequest(method="DELETE", path=path, body=options))

    def _wait_for_pods(self, deadline: float) -> tuple[str, ...]:
        """Wait for our pods to end. While one runs, the request must stay: without it, the pod would start to work again."""
        while True:
            names = tuple(sorted(str(pod["metadata"]["name"]) for pod in self._ours("pods", METADATA_LIST)))
            if not names or self._clock.now() >= deadline:
                return names
            self._clock.sleep(POLL_SECONDS)

    def _clear(self, *, is_leaving: bool) -> None:
        """Remove the requests; the answers too, unless the runtime stays and needs to see what it answered."""
        gone: dict[str, str | None] = {RELEASE_ANNOTATION: None}
        if is_leaving:
            gone[RELEASED_ANNOTATION] = None
        failed: ClusterError | None = None
        for name in self._has_left:
            try:
                self._annotate(name, gone)
            except ClusterError as error:
                failed = error
                if error.status in _NO_RIGHT:
                    # The nodes detect by themselves that the request is no longer in force.
                    break
        if failed is not None:
            raise failed

    def _annotate(self, node: str, annotations: Mapping[str, str | None]) -> None:
        body = {"metadata": {"annotations": annotations}}
        request = ApiRequest(method="PATCH", path=f"/api/v1/nodes/{node}", body=body, content_type=MERGE_PATCH, accept=METADATA)
        self._unless_gone(request)

    def _unless_gone(self, request: ApiRequest) -> None:
        self._connection.attempt(request, NOT_FOUND, CONFLICT)
