"""What nodes ask of a real API server, counted on the wire, in real time that may pass faster than it is written."""

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import JSON, ApiEndpoint, ApiRequest, Connection, Json, _Answer
from gpushare_node.core.clock import Stopped

_KINDS = ("leases", "events", "pods", "daemonsets", "resourceslices", "nodes")


def kind_of(request: ApiRequest) -> str:
    """What a request is about, as figures call it."""
    return next((one for one in _KINDS if f"/{one}" in request.path), "other")


class FastTime:
    """So many seconds for each real one. What the API server times by itself it times as ever."""

    def __init__(self, speed: float) -> None:
        self.speed = speed
        self._begun = time.monotonic()
        self._before = 0.0
        self._stop = threading.Event()

    def now(self) -> float:
        """Seconds since the beginning."""
        return self._before + (time.monotonic() - self._begun) * self.speed

    def sleep(self, seconds: float) -> None:
        """Wait. Stopped, when all are asked to end."""
        if self._stop.wait(max(0.0, seconds) / self.speed):
            raise Stopped

    def set_speed(self, speed: float) -> None:
        """From now on."""
        self._before, self._begun, self.speed = self.now(), time.monotonic(), speed

    def stop(self) -> None:
        """Ask all to end."""
        self._stop.set()


@dataclass(kw_only=True)
class Traffic:
    """Requests, events of watches and bytes of answers, as they come. Bookmarks apart: the server's own clock sends them.

    Apart as well: attempts that nobody answered.
    """

    requests: Counter[str] = field(default_factory=Counter)
    unanswered: int = 0
    events: int = 0
    bookmarks: int = 0
    received: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, *, request: str = "", unanswered: int = 0, received: int = 0, events: int = 0, bookmarks: int = 0) -> None:
        """Count. From any thread."""
        with self._lock:
            self.requests[request] += bool(request)
            self.unanswered += unanswered
            self.received += received
            self.events += events
            self.bookmarks += bookmarks

    def kinds(self, share: float) -> dict[str, float]:
        """Requests by verb and resource, divided by that."""
        return {name: count / share for name, count in sorted(self.requests.items())}

    def add(self, other: "Traffic") -> None:
        """Count what the other has counted, too."""
        self.requests.update(other.requests)
        self.unanswered += other.unanswered
        self.events += other.events
        self.bookmarks += other.bookmarks
        self.received += other.received

    def take(self) -> "Traffic":
        """What was counted since the last time."""
        with self._lock:
            taken = Traffic(
                requests=+self.requests,
                unanswered=self.unanswered,
                events=self.events,
                bookmarks=self.bookmarks,
                received=self.received,
            )
            self.requests.clear()
            self.unanswered = self.events = self.bookmarks = self.received = 0
        return taken


class _Weighed(_Answer):
    """An answer whose bytes are counted as they are read."""

    traffic: Traffic

    def content(self) -> bytes:
        found = super().content()
        self.traffic.note(received=len(found))
        return found

    def lines(self) -> Iterator[bytes]:
        for line in super().lines():
            is_bookmark = line.startswith(b'{"type":"BOOKMARK"')
            self.traffic.note(received=len(line) + 1, events=not is_bookmark, bookmarks=is_bookmark)
            yield line


class Observed(Connection):
    """A node's connection. Every request counts, also one that is repeated."""

    def __init__(self, address: ApiEndpoint, clock: FastTime, traffic: Traffic) -> None:
        super().__init__(address, clock)
        self._time = clock
        self._traffic = traffic

    def watch(self, path: str, query: Mapping[str, str], *, seconds: float, accept: str = JSON) -> Iterator[Json]:
        """The server ends it by real time."""
        return super().watch(path, query, seconds=seconds / self._time.speed, accept=accept)

    def _send(self, request: ApiRequest, connect_seconds: float, read_seconds: float) -> _Answer:
        method = "WATCH" if "watch" in request.query else request.method
        kind = kind_of(request)
        try:
            answer = super()._send(request, connect_seconds, read_seconds)
        except ClusterError:
            self._traffic.note(unanswered=1)
            raise
        self._traffic.note(request=f"{method} {kind}")
        weighed = _Weighed(answer.request, answer.raw)
        weighed.traffic = self._traffic
        return weighed
