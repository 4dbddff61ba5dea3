"""ApiEndpoint: the API server's URL and credentials. Connection: JSON requests to it, and watch streams. Stores no objects.

In a cluster it uses urllib3, the basis of the official client, directly: 22 MiB resident and 65 ms to import, whereas
`import kubernetes` takes 46 MiB and 200 ms, and its typed models 67 MiB. The official client is used only to read a kubeconfig,
for runs by hand.
"""

import itertools
import json
import random
import re
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from gpushare_node import __version__
from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.contract.struct import Struct, field
from gpushare_node.core.clock import Clock

if TYPE_CHECKING:
    import urllib3

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")

_CONNECTIONS = 4
"""Two watches, events, and the loop. With a smaller pool urllib3 discards connections and logs warnings."""


class ApiEndpoint(Struct):
    """The server's URL and the client's credentials. `headers` is called for every request, because kubelet rotates tokens."""

    url: str
    headers: Callable[[], Mapping[str, str]]
    open_pool: Callable[[], "urllib3.PoolManager"]


def find_endpoint(environ: Mapping[str, str], folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Return the server that KUBECONFIG names, or that of the cluster we run in. ClusterError if there is neither."""
    if environ.get("KUBECONFIG"):
        return from_kubeconfig(environ["KUBECONFIG"])
    if environ.get("KUBERNETES_SERVICE_HOST"):
        host, port = environ["KUBERNETES_SERVICE_HOST"], environ.get("KUBERNETES_SERVICE_PORT") or "443"
        return in_cluster(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}", folder)
    raise ClusterError("find the API server", None, "not in a pod, and KUBECONFIG is not set")


def in_cluster(url: str, folder: Path = SERVICE_ACCOUNT) -> ApiEndpoint:
    """Return the endpoint with the service account that kubelet mounts in that folder. It rotates the token about hourly."""

    def headers() -> Mapping[str, str]:
        try:
            return {"Authorization": f"Bearer {(folder / 'token').read_text(encoding='utf-8').strip()}"}
        except OSError as error:
            raise ClusterError("read the service account's token", None, str(error)) from error

    def open_pool() -> "urllib3.PoolManager":
        import urllib3  # noqa: PLC0415 - not imported for work without an API server

        return urllib3.PoolManager(ca_certs=str(folder / "ca.crt"), maxsize=_CONNECTIONS, socket_options=_keep_alive())

    return ApiEndpoint(url=url, headers=headers, open_pool=open_pool)


def from_kubeconfig(files: str) -> ApiEndpoint:
    """Return the endpoint of a kubeconfig's current context. `files` as in KUBECONFIG."""
    from kubernetes import client, config  # noqa: PLC0415 - see above
    from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - as above

    settings: Any = client.Configuration()
    load: Any = config.load_kube_config
    try:
        load(config_file=files, client_configuration=settings)
    except (config.ConfigException, OSError, ValueError) as error:
        raise ClusterError("read the kubeconfig", None, str(error)) from error
    settings.socket_options = _keep_alive()

    def headers() -> Mapping[str, str]:
        return {one["key"]: one["value"] for one in settings.auth_settings().values()}

    def open_pool() -> "urllib3.PoolManager":
        pool: urllib3.PoolManager = RESTClientObject(settings).pool_manager
        return pool

    return ApiEndpoint(url=settings.host, headers=headers, open_pool=open_pool)


def jitter(seconds: float, share: float = 0.5) -> float:
    """Return `seconds` reduced by a random part of up to `share`, so that nodes do not act at the same time."""
    return seconds * random.uniform(1 - share, 1)  # noqa: S311 - spreads load, guards nothing


def _keep_alive() -> list[tuple[int, int, int]]:
    """Return socket options with which a peer that disappeared is detected after 40 seconds."""
    return [
        (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    ]


Json = dict[str, Any]

CONNECT_SECONDS = 3.0
READ_SECONDS = 10.0
TOTAL_SECONDS = 15.0
"""No retry is started that could end after this."""
SILENCE_SECONDS = 120.0
"""A watch without any event for this long is dead: servers send a bookmark about every minute."""

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
JSON = "application/json"
METADATA = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
METADATA_LIST = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,{JSON}"
"""Only the metadata of an object, which may be a hundredth of it. A server without support for it sends the whole object."""

NOT_FOUND, CONFLICT, INVALID = 404, 409, 422

_PAGE = "250"
_ATTEMPTS = 3
_FIRST_PAUSE_SECONDS = 0.2
_PASSING = frozenset({429, 500, 502, 503, 504})
_MAX_REASON = 300
_DENIAL = re.compile("ValidatingAdmissionPolicy '([a-z0-9.-]{1,253})'")
"""How an answer names the policy: in the API server's own words, which no tenant writes."""


class ApiRequest(Struct):
    """A request and its format. `is_repeatable`: it is idempotent, so it may be retried."""

    method: str = "GET"
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    body: object = None
    content_type: str = JSON
    accept: str = JSON
    is_repeatable: bool = True

    @property
    def name(self) -> str:
        """Return the name of the request in errors."""
        return f"{self.method} {self.path}"

    @property
    def verb(self) -> str:
        """Return what the request is counted as: its method, or WATCH."""
        return "WATCH" if "watch" in self.query else self.method

    @property
    def target(self) -> str:
        """Return path and query."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


class Connection:
    """Sends requests. Thread-safe.

    `observe` is called with the verb and the status of each attempt, from any thread; None: no answer came. `observe_denial` is
    called with the admission policy that has denied a request.
    """

    def __init__(self, address: ApiEndpoint, clock: Clock) -> None:
        self.observe: Callable[[str, int | None], None] = _ignore
        self.observe_denial: Callable[[str], None] = _ignore
        self._address = address
        self._clock = clock
        self._pool: urllib3.PoolManager | None = None

    def get(self, path: str, query: Mapping[str, str] | None = None, accept: str = JSON) -> Json:
        """Return the object, or the list, at the path. ClusterError."""
        return self.ask(ApiRequest(path=path, query=query or {}, accept=accept))

    def find(self, path: str, query: Mapping[str, str] | None = None, accept: str = JSON) -> Json | None:
        """Return the object at the path; None if there is none. ClusterError."""
        return self.attempt(ApiRequest(path=path, query=query or {}, accept=accept), NOT_FOUND)

    def attempt(self, request: ApiRequest, *refusals: int) -> Json | None:
        """Return the server's answer; None if its status is one of these. ClusterError."""
        try:
            return self.ask(request)
        except ClusterError as error:
            if error.status in refusals:
                return None
            raise

    def pages(self, path: str, query: Mapping[str, str], accept: str = JSON) -> Iterator[Json]:
        """Yield the objects of a list; only one page is in memory. ClusterError; with status 410, it took too long."""
        more: dict[str, str] = {}
        while True:
            found = self.get(path, {**query, "limit": _PAGE, **more}, accept)
            yield from found.get("items") or ()
            token = (found.get("metadata") or {}).get("continue")
            if not token:
                return
            more = {"continue": token}

    def ask(self, request: ApiRequest) -> Json:
        """Return the server's answer. ClusterError for every failure; a failure that may be transient is tried three times."""
        deadline = self._clock.now() + TOTAL_SECONDS
        for attempt in itertools.count(1):
            try:
                return self._ask_once(request, deadline)
            except _FailureError as failure:
                pause = failure.pause(attempt)
                is_last = attempt >= _ATTEMPTS or self._clock.now() + pause >= deadline
                if is_last or not (request.is_repeatable and failure.is_passing):
                    raise failure.error from failure.__cause__
                self._clock.sleep(pause)
        raise AssertionError  # count() does not end

    def watch(self, path: str, query: Mapping[str, str], *, seconds: float, accept: str = JSON) -> Iterator[Json]:
        """Start a watch, and return its events; the server ends it after this many seconds.

        ClusterError, here and from the iterator.
        """
        desired = {**query, "watch": "1", "allowWatchBookmarks": "true", "timeoutSeconds": str(max(1, int(seconds)))}
        request = ApiRequest(path=path, query=desired, accept=accept)
        answer = self._send(request, CONNECT_SECONDS, SILENCE_SECONDS)
        if answer.raw.status >= 400:
            with answer:
                raise _failure(answer).error
        return _documents(answer)

    def close(self) -> None:
        """Close the open connections. A later request opens new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.clear()

    def _ask_once(self, request: ApiRequest, deadline: float) -> Json:
        left = max(0.1, deadline - self._clock.now())
        try:
            with self._send(request, min(CONNECT_SECONDS, left), min(READ_SECONDS, left)) as answer:
                if answer.raw.status >= 400:
                    failure = _failure(answer)
                    for policy in _DENIAL.findall(str(failure)):
                        self.observe_denial(policy)
                    raise failure
                return _parsed(request, answer.content())
        except ClusterError as error:
            raise _FailureError(error, is_passing=True) from error

    def _send(self, request: ApiRequest, connect_seconds: float, read_seconds: float) -> "_Answer":
        import urllib3  # noqa: PLC0415 - not imported for work without an API server

        pool = self._pool = self._pool or self._address.open_pool()
        headers = {"User-Agent": f"gpushare-node/{__version__}", "Accept": request.accept, **self._address.headers()}
        if request.body is not None:
            headers["Content-Type"] = request.content_type
        try:
            answer = pool.request(
                request.method,
                self._address.url + request.target,
                headers=headers,
                preload_content=False,
                retries=False,
                body=None if request.body is None else json.dumps(request.body).encode(),
                timeout=urllib3.Timeout(connect=connect_seconds, read=read_seconds),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            self.observe(request.verb, None)
            raise ClusterError(request.name, None, str(error)) from error
        self.observe(request.verb, answer.status)
        return _Answer(request, answer)


class _Answer:
    """An open answer. If it was read to its end, its connection is reused, else closed."""

    def __init__(self, request: ApiRequest, raw: "urllib3.BaseHTTPResponse") -> None:
        self.request = request
        self.raw = raw

    def __enter__(self) -> "_Answer":
        return self

    def __exit__(self, *_: object) -> None:
        # Closing returns no connection to the pool; a response that was read to its end has already returned it.
        self.raw.close()

    def content(self) -> bytes:
        """Read the whole answer. ClusterError."""
        import urllib3  # noqa: PLC0415 - already imported, if there is an answer

        try:
            return self.raw.read()
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(self.request.name, None, str(error)) from error

    def lines(self) -> Iterator[bytes]:
        """Yield the lines as they arrive. ClusterError."""
        import urllib3  # noqa: PLC0415 - as above

        rest = b""
        try:
            for chunk in self.raw.stream(amt=None):
                *whole, rest = (rest + chunk).split(b"\n")
                yield from filter(None, whole)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ClusterError(self.request.name, None, str(error)) from error


class _FailureError(Exception):
    """A request that failed, with what a retry needs to know."""

    def __init__(self, error: ClusterError, *, is_passing: bool, retry_after: float | None = None) -> None:
        super().__init__(str(error))
        self.error = error
        self.is_passing = is_passing
        self.retry_after = retry_after

    def pause(self, attempt: int) -> float:
        """Return the seconds to wait: the server's Retry-After, else longer each time, with jitter between nodes."""
        if self.retry_after is not None:
            return self.retry_after
        return _FIRST_PAUSE_SECONDS * 2.0 ** (attempt - 1) * random.uniform(1, 2)  # noqa: S311 - spreads load, guards nothing


def _ignore(*_: object) -> None:
    """Count nothing."""


def _documents(answer: _Answer) -> Iterator[Json]:
    with answer:
        for line in answer.lines():
            yield _parsed(answer.request, line)


def _failure(answer: _Answer) -> _FailureError:
    status = answer.raw.status
    try:
        document = json.loads(answer.content())
        message, causes = str(document["message"]), _causes(document)
    except (ClusterError, ValueError, TypeError, LookupError, AttributeError):
        message, causes = answer.raw.reason or "no reason given", frozenset()
    after = answer.raw.headers.get("Retry-After") or ""
    return _FailureError(
        ClusterError(answer.request.name, status, message[:_MAX_REASON], causes),
        is_passing=status in _PASSING,
        retry_after=float(after) if after.isdecimal() else None,
    )


def _causes(document: Json) -> frozenset[str]:
    """Return the reasons of the causes in a Status, beside its message."""
    return frozenset(str(one["reason"]) for one in (document.get("details") or {}).get("causes") or () if "reason" in one)


def _parsed(request: ApiRequest, data: bytes) -> Json:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise ClusterError(request.name, None, f"the answer is not JSON: {error}") from error
    if not isinstance(document, dict):
        raise ClusterError(request.name, None, "the answer is not a JSON object")
    return document
