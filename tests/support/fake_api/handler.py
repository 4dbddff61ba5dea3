"""The HTTP side of the API server's double: one request to one answer, or to a stream of watch events."""

import json
import re
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, unquote, urlsplit

import yaml

from tests.support.fake_api.patches import merge, patched
from tests.support.fake_api.refusals import REASONS, Refusal, conflict, expired, not_found
from tests.support.fake_api.store import KINDS, Change, Key, Object, chooser, event_of, now_text

if TYPE_CHECKING:
    from tests.support.fake_api.server import ApiServer, Fault

_PATH = re.compile(
    r"/(?:api|apis/[a-z0-9.]+)/v1(?:alpha1)?(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>nodes|pods|events|leases|daemonsets|configmaps|resourcequotas|secrets|deviceconfigs|resourceslices|deviceclasses"
    r"|resourceclaims|resourceclaimtemplates|(?:validating|mutating)admissionpolic(?:ies|ybindings))"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<part>status|eviction))?",
)


def bare(thing: Object) -> Object:
    """An object's metadata alone."""
    return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": thing["metadata"]}


def _page(items: list[Object], query: dict[str, str]) -> tuple[list[Object], dict[str, str]]:
    """The items that are asked for, and how to ask for more."""
    begin = int(query.get("continue") or 0)
    end = begin + int(query.get("limit") or len(items) or 1)
    return items[begin:end], {"continue": str(end)} if end < len(items) else {}


def _read(raw: bytes) -> Any:
    """JSON, as nearly everything is; else YAML, which takes a hundred times as long."""
    try:
        return json.loads(raw)
    except ValueError:
        return yaml.safe_load(raw)


class Handler(BaseHTTPRequestHandler):
    """Serves one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Any

    @property
    def api(self) -> "ApiServer":
        api: ApiServer = self.server.api
        return api

    def handle(self) -> None:
        with self.server.open(self.connection):
            super().handle()

    def log_message(self, *_: object) -> None:
        """Say nothing: `ApiServer.lines` has it."""

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - http.server looks for these names

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        body = _read(raw) if raw else None
        line = f"{self.command} {unquote(self.path)}"
        self.api.note(line, body)
        self.api.forms.append(self.headers.get("Accept", ""))
        fault = self.api.fault(line)
        if fault is not None and fault.garbage is not None:
            self._send(fault.status or 200, fault.garbage)
            return
        try:
            self._meet(fault)
            self._authenticate()
            if self.api.allows is not None and not self.api.allows(self.command, unquote(self.path)):
                raise Refusal(403, "Forbidden", f"you cannot {self.command.lower()} {urlsplit(self.path).path}")
            url = urlsplit(self.path)
            if unquote(url.path) in self.api.proxied:
                self._send(200, self.api.proxied[unquote(url.path)])
                return
            query = dict(parse_qsl(url.query, keep_blank_values=True))
            found = _PATH.fullmatch(unquote(url.path))
            if found is None:
                raise not_found("path", url.path)
            key = (found["plural"], found["namespace"] or "", found["name"] or "")
            if self.command == "GET" and query.get("watch") in {"1", "true"}:
                self._watch(key, query)
                return
            status, answer = self._answer(key, found["part"], query, body)
            if self._is_bare():
                answer = {**answer, "items": [bare(item) for item in answer["items"]]} if "items" in answer else bare(answer)
        except Refusal as refusal:
            status, answer = refusal.status, refusal.document()
            self._retry_after = refusal.retry_after
        except _CutError:
            self.close_connection = True
            return
        if fault is not None and fault.lose == "answer":
            self.close_connection = True
            return
        self._send(status, json.dumps(answer).encode())

    _retry_after: int | None = None

    def _meet(self, fault: "Fault | None") -> None:
        if fault is None:
            return
        if fault.act is not None:
            fault.act()
        if fault.seconds and self.api.stopping.wait(fault.seconds):
            raise _CutError
        if fault.lose == "request":
            raise _CutError
        if fault.status is not None:
            raise Refusal(fault.status, REASONS.get(fault.status, "Unknown"), "injected", retry_after=fault.retry_after)

    def _is_bare(self) -> bool:
        """Whether the metadata alone is asked for."""
        return "as=PartialObjectMetadata" in self.headers.get("Accept", "")

    def _authenticate(self) -> None:
        if self.api.token is not None and self.headers.get("Authorization", "").lower() != f"bearer {self.api.token}".lower():
            raise Refusal(401, "Unauthorized", "Unauthorized")

    def _send(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        if self._retry_after is not None:
            self.send_header("Retry-After", str(self._retry_after))
            self._retry_after = None
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, key: Key, part: str | None, query: dict[str, str], body: Any) -> tuple[int, Object]:
        store = self.api.store
        match self.command, part, bool(key[2]):
            case "GET", None, True:
                return 200, store.find(key)
            case "GET", None, False:
                items, version = store.select(key[0], key[1], chooser(query))
                api_version, kind = KINDS[key[0]]
                items, more = _page(items, query)
                return 200, {
                    "apiVersion": api_version,
                    "kind": f"{kind}List",
                    "metadata": {"resourceVersion": str(version), **more},
                    "items": items,
                }
            case "POST", None, False:
                return 201, store.create((key[0], key[1], body["metadata"]["name"]), body)
            case "POST", "eviction", True:
                return self._evict(key, query, body)
            case "PUT", None, True:
                return 200, store.change(
                    key,
                    lambda before: {
                        **body,
                        "metadata": {
                            **body["metadata"],
                            "uid": before["metadata"]["uid"],
                            "creationTimestamp": before["metadata"]["creationTimestamp"],
                        },
                    },
                )
            case "PATCH", None | "status", True:
                return 200, self._patch(key, part, query, body)
            case "DELETE", None, True:
                return 200, self._delete(key, body or {}, query)
            case _:
                raise Refusal(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _patch(self, key: Key, part: str | None, query: dict[str, str], body: Any) -> Object:
        content_type = self.headers.get("Content-Type", "").split(";")[0]
        manager = query.get("fieldManager") or self.headers.get("User-Agent", "unknown").partition("/")[0]
        uid = body.get("metadata", {}).get("uid") if isinstance(body, dict) else None
        try:
            self.api.store.find(key)
        except Refusal:
            if content_type == "application/apply-patch+yaml":
                if uid:
                    raise conflict(
                        f"uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                    ) from None
                return self.api.store.create(key, body)
            raise

        def change(before: Object) -> Object:
            after = patched(before, content_type, body, query, manager)
            # The sub-resource writes no spec, the resource everything but the status.
            return {**after, "spec": before.get("spec")} if part else {**after, "status": before.get("status")}

        return self.api.store.change(key, change)

    def _delete(self, key: Key, body: Any, query: dict[str, str]) -> Object:
        with self.api.store.changed:
            thing = self.api.store.find(key)
            self._check_preconditions(thing, body)
            if key[0] == "pods":
                self.api.eviction_budget -= 1
            if self.api.lingers and key[0] in {"pods", "daemonsets"}:
                return self.api.store.change(key, lambda one: merge(one, {"metadata": {"deletionTimestamp": now_text()}}))
            self.api.store.drop(key)
        if key[0] == "daemonsets" and "Orphan" not in {body.get("propagationPolicy"), query.get("propagationPolicy")}:
            self._collect(thing["metadata"]["uid"])
        return thing

    def _check_preconditions(self, thing: Object, options: Any) -> None:
        for field, wanted in (options.get("preconditions") or {}).items():
            if wanted != thing["metadata"][field]:
                raise conflict(f"the {field} in the precondition does not match the {field} in record")

    def _collect(self, owner: str) -> None:
        def owned(pod: Object) -> bool:
            return any(one["uid"] == owner for one in pod["metadata"].get("ownerReferences", []))

        for pod in self.api.store.select("pods", "", owned)[0]:
            self.api.store.drop(("pods", pod["metadata"]["namespace"], pod["metadata"]["name"]))

    def _evict(self, key: Key, query: dict[str, str], body: Any) -> tuple[int, Object]:
        """With dryRun alone, as the fence demands."""
        if query.get("dryRun") != "All":
            raise Refusal(403, "Forbidden", "the node runtime may only create evictions with dryRun")
        self._check_preconditions(self.api.store.find(key), body.get("deleteOptions") or {})
        if self.api.eviction_budget <= 0:
            raise Refusal(
                429,
                "TooManyRequests",
                "Cannot evict pod as it would violate the pod's disruption budget.",
                retry_after=10,
                cause="DisruptionBudget",
            )
        return 201, {"kind": "Status", "apiVersion": "v1", "status": "Success", "code": 201}

    def _watch(self, key: Key, query: dict[str, str]) -> None:
        chosen = chooser(query)
        version = int(query.get("resourceVersion") or 0)
        if version and version < self.api.store.oldest and not self.api.gone_by_event:
            raise expired(version)
        bookmarks = self.api.store.bookmarks  # before the client knows that it watches, and a test may send one
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self._stream(key, query, chosen, version, bookmarks)
        except Refusal as refusal:
            self._chunk("ERROR", refusal.document())
        self.wfile.write(b"0\r\n\r\n")

    def _stream(self, key: Key, query: dict[str, str], chosen: Callable[[Object], bool], version: int, bookmarks: int) -> None:
        store = self.api.store
        deadline = time.monotonic() + float(query.get("timeoutSeconds") or 1800)
        if not version:
            items, version = store.select(key[0], key[1], chosen)
            for item in items:
                self._chunk("ADDED", item)
        while not self.api.stopping.is_set():
            changes, version = self._next(key, version, bookmarks, deadline)
            for change in changes:
                seen = event_of(change, chosen) if _is_in(change, key[1]) else None
                if seen is not None:
                    kind, thing = seen
                    self._chunk(kind, bare(thing) if self._is_bare() else thing)
            if store.bookmarks != bookmarks:
                bookmarks = store.bookmarks
                if query.get("allowWatchBookmarks") in {"1", "true"}:
                    api_version, kind = KINDS[key[0]]
                    self._chunk(
                        "BOOKMARK", {"apiVersion": api_version, "kind": kind, "metadata": {"resourceVersion": str(version)}}
                    )
            if time.monotonic() >= deadline:
                return

    def _next(self, key: Key, version: int, bookmarks: int, deadline: float) -> tuple[list[Change], int]:
        store = self.api.store
        with store.changed:
            while True:
                changes, newest = store.since(key[0], version)
                left = deadline - time.monotonic()
                if changes or store.bookmarks != bookmarks or left <= 0 or self.api.stopping.is_set():
                    return changes, newest
                store.changed.wait(left)

    def _chunk(self, kind: str, thing: Object) -> None:
        data = json.dumps({"type": kind, "object": thing}).encode() + b"\n"
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
        self.wfile.flush()


def _is_in(change: Change, namespace: str) -> bool:
    thing = change.after if change.after is not None else change.before
    return not namespace or (thing is not None and thing["metadata"].get("namespace") == namespace)


class _CutError(Exception):
    """The connection is to be cut, without an answer."""
