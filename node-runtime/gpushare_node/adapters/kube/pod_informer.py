"""Pods and the node, watched: what enforcement knows of the API server while it runs, also when that cannot be reached.

Only views are kept; the objects, ten times as large, are let go of. Of the node, whose object is large and written all the
time, only the metadata is asked for.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import RELEASE_ANNOTATION, RETRY_ANNOTATION, PodView
from gpushare_node.adapters.kube.connection import Connection, Json
from gpushare_node.adapters.kube.informer import Informer, WatchSpec
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.core.clock import Clock


class PodInformer:
    """The pods of one node. Read from any thread: what they read is replaced as a whole, never changed."""

    def __init__(self, connection: Connection, node: str, clock: Clock) -> None:
        self._pods: Mapping[str, PodView] = {}
        self._by_uid: Mapping[str, PodView] = {}
        selection = WatchSpec(
            path="/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"}, replace=self._replace, change=self._change)
        self.watching = Informer(connection, selection, clock)

    def start(self) -> threading.Thread:
        """Watch, in a thread that does not keep the program alive."""
        return _start(self.watching, "pods")

    @property
    def age_seconds(self) -> float:
        """For how long the list has not been known to be true; infinite before the first."""
        return self.watching.age_seconds

    def pods(self) -> tuple[PodView, ...]:
        """All of them, in any phase."""
        return tuple(self._pods.values())

    def find(self, uid: str) -> PodView | None:
        """The pod of this uid: its own, or the one by which kubelet and cgroups know a static pod."""
        return self._by_uid.get(uid)

    def _replace(self, objects: Sequence[Json]) -> None:
        self._keep({pod.uids[0]: pod for pod in map(view_pod, objects)})

    def _change(self, thing: Json, is_gone: bool) -> None:
        pod = view_pod(thing)
        others = {uid: one for uid, one in self._pods.items() if uid != pod.uids[0]}
        self._keep(others if is_gone else {**others, pod.uids[0]: pod})

    def _keep(self, pods: Mapping[str, PodView]) -> None:
        self._pods = pods
        # Its own uids last, so that they win: nobody's other uid may hide a pod.
        self._by_uid = {uid: pod for pod in pods.values() for uid in pod.uids} | dict(pods)


class NodeInformer:
    """The own node's marks, watched: its labels, which pools select by, and what it is asked for: its release, another attempt.

    `changed` is called, in the watch's thread, at the first look and when they differ; others' annotations are no news.
    """

    def __init__(self, connection: Connection, node: str, clock: Clock, changed: Callable[[], None]) -> None:
        self._marks: tuple[Mapping[str, str], str | None, str | None] | None = None
        self._annotations: Mapping[str, str] | None = None
        self._changed = changed
        selection = WatchSpec(
            path="/api/v1/nodes", query={"fieldSelector": f"metadata.name={node}"}, replace=self._replace, change=self._change,
            is_bare=True,
        )
        self.watching = Informer(connection, selection, clock)

    def start(self) -> threading.Thread:
        """Watch, in a thread that does not keep the program alive."""
        return _start(self.watching, "node")

    def annotations(self) -> Mapping[str, str] | None:
        """As last heard; None before the first time."""
        return self._annotations

    def _replace(self, objects: Sequence[Json]) -> None:
        for thing in objects:
            self._change(thing, is_gone=False)

    def _change(self, thing: Json, is_gone: bool) -> None:
        metadata = thing["metadata"]
        annotations = metadata.get("annotations") or {}
        marks = (metadata.get("labels") or {}, annotations.get(RELEASE_ANNOTATION), annotations.get(RETRY_ANNOTATION))
        self._annotations = annotations
        before, self._marks = self._marks, None if is_gone else marks
        if not is_gone and before != marks:
            self._changed()


def _start(watching: Informer, name: str) -> threading.Thread:
    thread = threading.Thread(target=watching.run, name=f"watch-{name}", daemon=True)
    thread.start()
    return thread
