"""PodInformer, NodeInformer, SliceInformer: what enforcement knows from the API server, also while that is unreachable.

Only views are stored; the objects are ten times as large and are dropped. Of the node, whose object is large and written all
the time, only the metadata is requested.
"""

import threading
from collections.abc import Callable, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import RELEASE_ANNOTATION, RETRY_ANNOTATION, PodView
from gpushare_node.adapters.kube.connection import Connection, Json
from gpushare_node.adapters.kube.informer import Informer, WatchSpec
from gpushare_node.adapters.kube.slices import PATH, SliceView, select_node, view_slice
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.core.clock import Clock


class PodInformer:
    """The pods of one node. Any thread may read: updates replace the mappings as a whole and never change them."""

    def __init__(self, connection: Connection, node: str, clock: Clock) -> None:
        self._pods: Mapping[str, PodView] = {}
        self._by_uid: Mapping[str, PodView] = {}
        selection = WatchSpec(
            path="/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node}"}, replace=self._replace, change=self._change
        )
        self.watching = Informer(connection, selection, clock)

    def start(self) -> threading.Thread:
        """Watch, in a thread that does not keep the program alive."""
        return _start(self.watching, "pods")

    @property
    def age_seconds(self) -> float:
        """Return for how long the list may be outdated; infinite before the first list."""
        return self.watching.age_seconds

    def pods(self) -> tuple[PodView, ...]:
        """Return all pods, in any phase."""
        return tuple(self._pods.values())

    def find(self, uid: str) -> PodView | None:
        """Return the pod with this uid: its own, or for a static pod the one that kubelet and cgroups use."""
        return self._by_uid.get(uid)

    def _replace(self, objects: Sequence[Json]) -> None:
        self._keep({pod.uids[0]: pod for pod in map(view_pod, objects)})

    def _change(self, thing: Json, is_gone: bool) -> None:
        pod = view_pod(thing)
        others = {uid: one for uid, one in self._pods.items() if uid != pod.uids[0]}
        self._keep(others if is_gone else {**others, pod.uids[0]: pod})

    def _keep(self, pods: Mapping[str, PodView]) -> None:
        self._pods = pods
        # Pods' own uids last, so that they win: another pod's second uid must not hide a pod.
        self._by_uid = {uid: pod for pod in pods.values() for uid in pod.uids} | dict(pods)


class NodeInformer:
    """The labels of the runtime's node, by which pools select it, and the annotations that request it to leave or to retry.

    Of the rest it tells whether anything has changed.

    `changed` is called, in the watch's thread, for the first object and when these change; other annotations do not matter.
    """

    def __init__(self, connection: Connection, node: str, clock: Clock, changed: Callable[[], None]) -> None:
        self._marks: tuple[Mapping[str, str], str | None, str | None] | None = None
        self._annotations: Mapping[str, str] | None = None
        self._version: str | None = None
        self._changed = changed
        selection = WatchSpec(
            path="/api/v1/nodes",
            query={"fieldSelector": f"metadata.name={node}"},
            replace=self._replace,
            change=self._change,
            is_bare=True,
        )
        self.watching = Informer(connection, selection, clock)

    def start(self) -> threading.Thread:
        """Watch, in a thread that does not keep the program alive."""
        return _start(self.watching, "node")

    def annotations(self) -> Mapping[str, str] | None:
        """Return the last known annotations; None before the first object."""
        return self._annotations

    def version(self) -> str | None:
        """Return the object's resourceVersion, which any change changes; None if it may be outdated."""
        return None if self.watching.age_seconds > 0 else self._version

    def _replace(self, objects: Sequence[Json]) -> None:
        for thing in objects:
            self._change(thing, is_gone=False)

    def _change(self, thing: Json, is_gone: bool) -> None:
        metadata = thing["metadata"]
        annotations = metadata.get("annotations") or {}
        marks = (metadata.get("labels") or {}, annotations.get(RELEASE_ANNOTATION), annotations.get(RETRY_ANNOTATION))
        self._annotations = annotations
        self._version = None if is_gone else metadata.get("resourceVersion")
        before, self._marks = self._marks, None if is_gone else marks
        if not is_gone and before != marks:
            self._changed()


class SliceInformer:
    """The ResourceSlices of a DRA driver of one node. Any thread may read, as of `PodInformer`."""

    def __init__(self, connection: Connection, node: str, driver: str, clock: Clock) -> None:
        self._slices: Mapping[str, SliceView] = {}
        selection = WatchSpec(path=PATH, query=select_node(node, driver), replace=self._replace, change=self._change)
        self.watching = Informer(connection, selection, clock)

    def start(self) -> threading.Thread:
        """Watch, in a thread that does not keep the program alive."""
        return _start(self.watching, "slices")

    def slices(self) -> tuple[SliceView, ...] | None:
        """Return the slices; None if they may be outdated."""
        return None if self.watching.age_seconds > 0 else tuple(self._slices.values())

    def _replace(self, objects: Sequence[Json]) -> None:
        self._slices = {one.name: one for one in map(view_slice, objects)}

    def _change(self, thing: Json, is_gone: bool) -> None:
        changed = view_slice(thing)
        others = {name: one for name, one in self._slices.items() if name != changed.name}
        self._slices = others if is_gone else {**others, changed.name: changed}


def _start(watching: Informer, name: str) -> threading.Thread:
    thread = threading.Thread(target=watching.run, name=f"watch-{name}", daemon=True)
    thread.start()
    return thread
