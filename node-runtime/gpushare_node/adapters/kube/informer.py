"""Informer: a list of objects, kept up to date by a watch for as long as the program runs. Its owner interprets the objects.

If a thousand nodes start together, or lose one API server, they must not reconnect together: every pause here has jitter.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpushare_node.adapters.kube.api_endpoint import jitter
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import JSON, METADATA, METADATA_LIST, Connection, Json
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
    """One watch. `run` is the body of a thread; other threads read the rest."""

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
            self._recover(error)
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
            self._take(events)
        finally:
            self._lost_at = self._clock.now()
            self._is_open = False

    def _take(self, events: Iterator[Json]) -> None:
        for event in events:
            thing = event["object"]
            if event["type"] == "ERROR":
                raise ClusterError(f"WATCH {self._selection.path}", thing.get("code"), str(thing.get("message")))
            self.version = thing["metadata"]["resourceVersion"]
            self._calm()
            if event["type"] != "BOOKMARK":
                self._selection.change(thing, event["type"] == "DELETED")

    def _recover(self, error: ClusterError) -> None:
        if error.status == _GONE:
            self.version = None
            self._clock.sleep(jitter(RELIST_SECONDS, 1.0))
        else:
            self._wait()

    def _wait(self) -> None:
        self._pause = min(MAX_PAUSE_SECONDS, self._pause * 2 or 1.0)
        self._clock.sleep(jitter(self._pause))

    def _calm(self) -> None:
        self._pause = 0.0
