"""EventRecorder: Events for users, sent in the background. Bounded, deduplicated, rate-limited; a refusal stops nothing.

Equal events (same object, type, reason and message) are one Event whose count grows, under a name that is derived from them and
from our pod: a restarted container continues the count, and a retry after a lost answer creates no second Event. A new pod
creates new ones: to continue the count of the previous pod's takes three writes instead of one.
"""

import hashlib
import math
import threading
from collections import Counter

from gpushare_node.adapters.kube.cluster import ClusterError, Event, EventCounts
from gpushare_node.adapters.kube.connection import MERGE_PATCH, NOT_FOUND, ApiRequest, Connection, Json, jitter
from gpushare_node.adapters.kube.pod_identity import PodIdentity
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Clock, Stopped, timestamp

MAX_WAITING = 200
MAX_AT_ONCE = 10
"""The burst: this many are sent without a pause; in the long run, one a second."""
MAX_REMEMBERED = 500
DRAIN_SECONDS = 3.0
"""How long a program that ends waits for its last Events."""

_COMPONENT = "gpushare-node"
_MAX_MESSAGE = 1024
_MAX_NAME = 230
_MAX_PAUSE_SECONDS = 60.0
_FORBIDDEN_SECONDS = 60.0
"""How long a forbidden event is tried again: an API server that has just started forbids all until it has read its roles."""
_FORBIDDEN_PAUSE_SECONDS = 5.0
_FORBIDDEN = 403


class _Waiting(Struct):
    """An event in the queue. `times`: how often it occurred since it was last sent. `forbidden_at`: when it first was."""

    event: Event
    times: int
    first: str
    last: str
    forbidden_at: float = math.inf
    due_at: float = -math.inf


class EventRecorder:
    """The queue. Any thread may call `add`; `run` is the body of one thread."""

    def __init__(self, connection: Connection, identity: PodIdentity, clock: Clock) -> None:
        self._connection = connection
        self._place = identity
        self._clock = clock
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._totals = Counter[str]()
        self._counts: dict[str, int] = {}
        self._tokens = MAX_AT_ONCE
        self._pause = 0.0

    def add(self, event: Event) -> None:
        """Queue it. If the queue is full, the oldest event of the object that has the most is dropped."""
        name, now = self._name(event), timestamp()
        with self._lock:
            same = self._waiting.get(name)
            if same is not None:
                self._waiting[name] = replace(same, times=same.times + 1, last=now)
                return
            if len(self._waiting) >= MAX_WAITING:
                chatty = Counter(_about(one.event) for one in self._waiting.values()).most_common(1)[0][0]
                del self._waiting[next(key for key, one in self._waiting.items() if _about(one.event) == chatty)]
                self._totals["dropped"] += 1
            self._waiting[name] = _Waiting(event=event, times=1, first=now, last=now)

    def event_counts(self) -> EventCounts:
        """Return the counts since the start."""
        with self._lock:
            return EventCounts(sent=self._totals["sent"], refused=self._totals["refused"], dropped=self._totals["dropped"])

    def run(self) -> None:
        """Send what is queued, until the clock is stopped."""
        try:
            while True:
                self.deliver()
                self._clock.sleep(max(1.0, self._pause))
                self._tokens = min(MAX_AT_ONCE, self._tokens + 1)
        except Stopped:
            return

    def drain(self, seconds: float = DRAIN_SECONDS) -> bool:
        """Send the rest of the queue before the program ends, for at most this many seconds. Whether all is sent."""
        deadline = self._clock.now() + seconds
        while True:
            self._tokens = MAX_AT_ONCE
            with self._sending:
                self._deliver(is_last=True)
            with self._lock:
                is_empty = not self._waiting
            if is_empty or self._clock.now() + self._pause >= deadline:
                return is_empty
            try:
                self._clock.sleep(self._pause)
            except Stopped:
                return False

    def deliver(self) -> None:
        """Send as many as the rate limit allows now, oldest first. If a failure is not permanent, the event stays queued."""
        with self._sending:
            self._deliver(is_last=False)

    def _deliver(self, *, is_last: bool) -> None:
        """`is_last`: the program ends, so nothing that is forbidden is tried again."""
        while self._tokens > 0:
            now = self._clock.now()
            with self._lock:
                found = next((item for item in self._waiting.items() if is_last or item[1].due_at <= now), None)
            if found is None:
                return
            name, waiting = found
            try:
                count = self._write(name, waiting)
            except ClusterError as error:
                if not _is_for_good(error):
                    self._pause = jitter(min(_MAX_PAUSE_SECONDS, max(1.0, self._pause) * 2))
                    return
                if error.status == _FORBIDDEN and not is_last and now - waiting.forbidden_at < _FORBIDDEN_SECONDS:
                    self._put_off(name, now)
                else:
                    self._done(name, waiting, "refused", None)
            else:
                self._done(name, waiting, "sent", count)
            self._pause = 0.0
            self._tokens -= 1

    def _write(self, name: str, waiting: _Waiting) -> int:
        """Send the event, and return its new count."""
        before = self._counts.get(name)
        if before is None:
            try:
                self._make(name, waiting)
            except ClusterError as error:
                if error.status != 409:
                    raise
                # From before a restart. The answer to a patch has its count: we may patch events, but not read them.
                before = int(self._patch(name, waiting, {}).get("count") or 1)
            else:
                return waiting.times
        count = before + waiting.times
        try:
            self._patch(name, waiting, {"count": count})
        except ClusterError as error:
            if error.status != NOT_FOUND:
                raise
            # The server deletes events after an hour.
            self._make(name, waiting)
            return waiting.times
        return count

    def _make(self, name: str, waiting: _Waiting) -> None:
        event = waiting.event
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": _namespace(event)},
            "involvedObject": self._involved(event),
            "type": event.type.value,
            "reason": event.reason,
            "message": event.message[:_MAX_MESSAGE],
            "count": waiting.times,
            "firstTimestamp": waiting.first,
            "lastTimestamp": waiting.last,
            "source": {"component": _COMPONENT, "host": self._place.node},
            "reportingComponent": _COMPONENT,
            "reportingInstance": self._place.node,
        }
        self._connection.ask(ApiRequest(method="POST", path=_path(event), body=body, is_repeatable=False))

    def _patch(self, name: str, waiting: _Waiting, more: Json) -> Json:
        body = {"lastTimestamp": waiting.last, **more}
        path = f"{_path(waiting.event)}/{name}"
        return self._connection.ask(ApiRequest(method="PATCH", path=path, body=body, content_type=MERGE_PATCH))

    def _put_off(self, name: str, now: float) -> None:
        """Try it again later, and the others meanwhile."""
        with self._lock:
            waiting = self._waiting.get(name)  # meanwhile it may have been dropped
            if waiting is not None:
                since = min(waiting.forbidden_at, now)
                self._waiting[name] = replace(waiting, forbidden_at=since, due_at=now + _FORBIDDEN_PAUSE_SECONDS)

    def _done(self, name: str, waiting: _Waiting, outcome: str, count: int | None) -> None:
        with self._lock:
            self._totals[outcome] += 1
            now = self._waiting.pop(name, None)  # meanwhile it may have happened again, or been dropped
            if now is not None and now.times > waiting.times and count is not None:
                self._waiting[name] = replace(now, times=now.times - waiting.times, forbidden_at=math.inf, due_at=-math.inf)
            if count is not None:
                self._counts.pop(name, None)
                self._counts[name] = count
                if len(self._counts) > MAX_REMEMBERED:
                    del self._counts[next(iter(self._counts))]

    def _involved(self, event: Event) -> Json:
        if event.pod is None:
            # Kubelet also uses the node's name as the uid here: `kubectl describe node` searches for that.
            return {"apiVersion": "v1", "kind": "Node", "name": self._place.node, "uid": self._place.node}
        pod = event.pod
        return {"apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uids[0]}

    def _name(self, event: Event) -> str:
        ours = (self._place.node, self._place.pod_uid)
        whole = "\0".join((*ours, *_about(event), event.type.value, event.reason, event.message))
        name = event.pod.name if event.pod is not None else self._place.node
        return f"{name[:_MAX_NAME].rstrip('.-')}.{hashlib.sha256(whole.encode()).hexdigest()[:16]}"


def _is_for_good(error: ClusterError) -> bool:
    return error.status is not None and 400 <= error.status < 500 and error.status not in {401, 408, 429}


def _about(event: Event) -> tuple[str, ...]:
    return ("node",) if event.pod is None else ("pod", event.pod.namespace, event.pod.uids[0])


def _namespace(event: Event) -> str:
    return event.pod.namespace if event.pod is not None else "default"


def _path(event: Event) -> str:
    return f"/api/v1/namespaces/{_namespace(event)}/events"
