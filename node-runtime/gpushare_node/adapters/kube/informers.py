"""Informers of the node, its pods and its slices: what enforcement knows from the API server, also while it does not answer.

Only views are stored; the objects are ten times as large and are dropped. Of the node, whose object is large and written all
the time, only the metadata is requested.
"""

import math
import threading
from collections.abc import Callable, Mapping, Sequence

from gpushare_node.adapters.kube.cluster import ClusterError, PodView
from gpushare_node.adapters.kube.connection import JSON, METADATA, METADATA_LIST, Connection, Json, jitter
from gpushare_node.adapters.kube.slices import PATH, SliceView, select_node, view_slice
from gpushare_node.adapters.kube.views import view_pod
from gpushare_node.contract.names import RELEASE_ANNOTATION, RETRY_ANNOTATION
from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock, Stopped

START_SECONDS = 3.0
RELIST_SECONDS = 5.0
WATCH_SECONDS = 1800.0
"""The API server's default timeout of a watch; a dead one is detected by its silence, long before."""
MAX_PAUSE_SECONDS = 30.0

_GONE = 410
_TOO_SHORT_SECONDS = 1.0


class WatchSpec(Struct):
    """What is watched, and the handlers: `replace` gets the whole list, `change` one object that is new, changed or deleted.

    `is_bare`: only the metadata of objects is requested.
    """

    path: str
    query: Mapping[str, str]
    replace: Callable[[Sequence[Json]], None]
    change: Callable[[Json, bool], None]
    is_bare: bool = False


class Informer:
    """A list of objects, kept up to date by a watch for as long as the program runs. Its owner interprets the objects.

    `run` is the body of a thread; other threads read the rest. If a thousand nodes start together, or lose one API server, they
    must not reconnect together: every pause here has jitter.
    """

    def __init__(self, connection: Connection, selection: WatchSpec, clock: Clock) -> None:
        self._connection = connection
        self._selection = selection
        self._clock = clock
        self.version: str | None = None
        self._pause = 0.0
        self._is_open = False
        self._lost_at = -math.inf
        self.errors = 0

    @property
    def age_seconds(self) -> float:
        """Return for how long nothing has come from the server: 0 while the watch is open, infinite before the first list."""
        return 0.0 if self._is_open else self._clock.now() - self._lost_at

    def run(self) -> None:
        """List and watch repeatedly, until the clock is stopped."""
        try:
            self._clock.sleep(jitter(START_SECONDS, 1.0))
            while True:
                self.step()
        except Stopped:
            return

    def step(self) -> None:
        """List, if necessary, and watch until the watch ends; then pause, depending on how it ended."""
        began = self._clock.now()
        try:
            if self.version is None:
                self._list()
            self._follow()
        except ClusterError as error:
            self.errors += 1
            if error.status == _GONE:
                self.version = None
                self._clock.sleep(jitter(RELIST_SECONDS, 1.0))
            else:
                self._wait()
        except (LookupError, TypeError, AttributeError, ValueError):
            # An object that cannot be parsed must not end the watch permanently.
            self.errors += 1
            self.version = None
            self._wait()
        else:
            # If a proxy between us and the server ends watches immediately, do not reconnect without a pause.
            self._wait() if self._clock.now() - began < _TOO_SHORT_SECONDS else self._calm()

    def _list(self) -> None:
        # Version 0: from the server's cache, which indexes pods by node. The watch continues from the version of that list.
        query = {**self._selection.query, "resourceVersion": "0"}
        form = METADATA_LIST if self._selection.is_bare else JSON
        found = self._connection.get(self._selection.path, query, form)
        self._selection.replace(found.get("items") or ())
        self.version = found["metadata"]["resourceVersion"]
        self._lost_at = self._clock.now()

    def _follow(self) -> None:
        query = {**self._selection.query, "resourceVersion": self.version or ""}
        form = METADATA if self._selection.is_bare else JSON
        events = self._connection.watch(self._selection.path, query, seconds=jitter(WATCH_SECONDS), accept=form)
        self._is_open = True
        try:
            for event in events:
                thing = event["object"]
                if event["type"] == "ERROR":
                    raise ClusterError(f"WATCH {self._selection.path}", thing.get("code"), str(thing.get("message")))
                self.version = thing["metadata"]["resourceVersion"]
                self._calm()
                if event["type"] != "BOOKMARK":
                    self._selection.change(thing, event["type"] == "DELETED")
        finally:
            self._lost_at = self._clock.now()
            self._is_open = False

    def _wait(self) -> None:
        self._pause = min(MAX_PAUSE_SECONDS, self._pause * 2 or 1.0)
        self._clock.sleep(jitter(self._pause))

    def _calm(self) -> None:
        self._pause = 0.0


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
