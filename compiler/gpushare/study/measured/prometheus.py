"""Prometheus' HTTP API: queries and answers. Nothing is retried; no redirect is followed, so credentials go nowhere else.

Also whether series have the labels that our queries need, and are those of one cluster.
"""

import json
import math
import ssl
from base64 import b64encode
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from typing import Any
from urllib import request
from urllib.error import HTTPError, URLError
from urllib.parse import unquote, urlencode, urlsplit

from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import clean, join_first
from gpushare_node.contract.struct import Struct

_MAX_BYTES = 64 << 20
_MAX_REASON = 300
_BASE = "name the address that serves /api/v1/query, such as http://prometheus.example.org:9090"
_CREDENTIALS = "PROMETHEUS_TOKEN is sent as a bearer token; user and password belong in the URL: https://USER:PASSWORD@HOST"


class PrometheusError(HintedError):
    """There is no usable answer."""


class Series(Struct):
    """One series of an answer: `points` are (seconds since 1970, value); None: the value is not a finite number."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float | None], ...]


class Prometheus:
    """One server. `warnings` collects what it says about the completeness of its answers."""

    def __init__(self, url: str, headers: Mapping[str, str], *, token: str, ca_file: str, timeout_seconds: float) -> None:
        """Raise PrometheusError for a URL, header, token or CA file that cannot be used."""
        self._base, credentials = _address(url)
        self._headers = _headers(credentials, token, headers)
        self._opener = _opener(ca_file)
        self._timeout = timeout_seconds
        self.warnings: dict[str, None] = {}

    def at(self, query: str, time: float) -> list[Series]:
        """Return the query's value at a time, one point for each series. PrometheusError."""
        result = self._ask("query", "vector", {"query": query, "time": f"{time:.0f}"})
        return [_series(one, [one["value"]]) for one in result]

    def between(self, query: str, start: float, end: float, step_seconds: int) -> list[Series]:
        """Return the query's values from `start` to `end`, both included. PrometheusError."""
        times = {"start": f"{start:.0f}", "end": f"{end:.0f}", "step": str(step_seconds)}
        return [_series(one, one["values"]) for one in self._ask("query_range", "matrix", {"query": query, **times})]

    def _ask(self, path: str, kind: str, parameters: Mapping[str, str]) -> list[dict[str, Any]]:
        status, media, data = self._read(f"{self._base}/api/v1/{path}?{urlencode(parameters)}")
        answer = _decoded(data)
        if answer is None or answer.get("status") != "success":
            raise _refused(self._base, status, media, answer)
        warnings = answer.get("warnings") or []
        if not isinstance(warnings, list) or not all(isinstance(warning, str) for warning in warnings):
            raise PrometheusError(f"{self._base} does not answer as Prometheus: the warnings are no list of texts", _BASE)
        self.warnings.update(dict.fromkeys(clean(warning, _MAX_REASON) for warning in warnings))
        found = answer.get("data")
        result = found.get("result") if isinstance(found, dict) and found.get("resultType") == kind else None
        value = "value" if kind == "vector" else "values"
        if not isinstance(result, list) or not all(
            isinstance(one, dict) and isinstance(one.get(value), list) for one in result
        ):
            raise PrometheusError(f"{self._base} does not answer as Prometheus: the result is no {kind}", _BASE)
        return result

    def _read(self, url: str) -> tuple[int, str, bytes]:
        """Return status, media type and body."""
        workers = ThreadPoolExecutor(1)
        try:  # a server that sends a byte now and then never reaches the socket's own timeout
            return workers.submit(self._get, url).result(self._timeout)
        except TimeoutError as problem:
            hint = "--timeout waits longer; Prometheus itself ends a query after its --query.timeout, two minutes by default"
            raise PrometheusError(f"{self._base}: no complete answer within {self._timeout:g} s", hint) from problem
        finally:
            workers.shutdown(wait=False, cancel_futures=True)

    def _get(self, url: str) -> tuple[int, str, bytes]:
        try:
            answer = self._opener.open(request.Request(url, headers=self._headers), timeout=self._timeout)  # noqa: S310 - http or https
        except HTTPError as refusal:
            answer = refusal
        except URLError as problem:
            raise self._unreachable(problem.reason) from problem
        except (OSError, HTTPException, ValueError) as problem:
            raise self._unreachable(problem) from problem
        try:
            with answer:
                data = answer.read(_MAX_BYTES + 1)
                left = getattr(answer, "length", None)
        except (OSError, HTTPException) as problem:
            raise PrometheusError(f"{self._base}: the answer breaks off: {_text(problem)}") from problem
        if len(data) > _MAX_BYTES:
            raise PrometheusError(f"{self._base}: the answer is larger than {_MAX_BYTES >> 20} MiB")
        if left:
            raise PrometheusError(f"{self._base}: the answer breaks off, {left} bytes before its end")
        return answer.status, answer.headers.get_content_type(), data

    def _unreachable(self, problem: object) -> PrometheusError:
        if isinstance(problem, TimeoutError):
            return PrometheusError(f"{self._base}: no answer within {self._timeout:g} s", "--timeout waits longer")
        if isinstance(problem, ssl.SSLError):
            return PrometheusError(f"{self._base}: TLS failed: {_text(problem)}", "--cacert names the CA of its certificate")
        hint = "check the address, the network and HTTPS_PROXY; in a cluster: `kubectl port-forward` to Prometheus' Service"
        return PrometheusError(f"cannot reach {self._base}: {_text(problem)}", hint)


def _address(url: str) -> tuple[str, str]:
    """Return the base address without credentials, and the credentials as `user:password`."""
    if not url:
        raise PrometheusError("the URL of Prometheus is empty", _BASE)
    try:
        parts = urlsplit(url)
    except ValueError as problem:
        raise PrometheusError(f"the URL of Prometheus cannot be read: {problem}", _BASE) from problem
    try:
        port = parts.port
    except ValueError as problem:
        raise PrometheusError("the URL of Prometheus cannot be read: its port is not a number up to 65535", _BASE) from problem
    host = parts.hostname or ""
    if parts.scheme not in {"http", "https"} or not host or not url.isprintable() or " " in url:
        is_host = url.isprintable() and not set(url) & {" ", "@"} and "//" not in url
        meant = f"write http://{url} or https://{url}" if is_host else _BASE
        raise PrometheusError("the URL of Prometheus must begin with http:// or https:// and a host", meant)
    try:
        host.encode("idna")
    except UnicodeError as problem:
        raise PrometheusError(
            "the host in the URL of Prometheus is not a name: a part is empty or too long", _BASE
        ) from problem
    if not parts.path.isascii():
        raise PrometheusError("the path in the URL of Prometheus has characters outside ASCII", "write them as %XX, in UTF-8")
    if parts.query or parts.fragment:
        raise PrometheusError("the URL of Prometheus has a query or a fragment", _BASE)
    named = f"[{host}]" if ":" in host else host
    base = f"{parts.scheme}://{named}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"
    password = None if parts.username is None else f"{unquote(parts.username)}:{unquote(parts.password or '')}"
    return base, password or ""


def _headers(credentials: str, token: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the headers; one that is given replaces ours, and credentials in the URL the token."""
    headers = {"Accept": "application/json"}
    if credentials:
        headers["Authorization"] = f"Basic {b64encode(credentials.encode()).decode()}"
    elif token:
        headers["Authorization"] = f"Bearer {token.strip()}"
    for name, value in given.items():
        headers = {known: text for known, text in headers.items() if known.lower() != name.lower()} | {name: value}
    for name, value in headers.items():  # http.client's own message would have the token in it
        if not all(" " <= character <= "\xff" and character != "\x7f" for character in value):
            raise PrometheusError(f"the header {clean(name)} contains a line break or a character that no header has")
    return headers


def _opener(ca_file: str) -> request.OpenerDirector:
    class _NoRedirect(request.HTTPRedirectHandler):
        def redirect_request(self, *_: object) -> None:
            return None

    try:
        context = ssl.create_default_context(cafile=ca_file or None)
    except (OSError, ValueError) as problem:
        raise PrometheusError(
            f"cannot read {ca_file}: {_text(problem)}", "--cacert names a file of PEM certificates"
        ) from problem
    return request.build_opener(request.HTTPSHandler(context=context), _NoRedirect)


def _decoded(data: bytes) -> dict[str, Any] | None:
    """Return the answer, empty if it is no object; None: it is no JSON text."""
    try:
        answer = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) else {}


def _refused(base: str, status: int, media: str, answer: Mapping[str, Any] | None) -> PrometheusError:
    given = answer or {}
    reason = clean(str(given.get("error") or ""), _MAX_REASON)
    if status in {401, 403}:
        return PrometheusError(f"{base} does not accept the credentials ({status}){reason and f': {reason}'}", _CREDENTIALS)
    if 300 <= status < 400:
        return PrometheusError(f"{base} redirects to another address ({status})", "name that address, if it is Prometheus")
    if reason or given.get("status") == "error":
        kind = clean(str(given.get("errorType") or "error"), 40)
        return PrometheusError(f"{base} refuses the query ({status}, {kind}){f': {reason}' if reason else ' without a reason'}")
    if status != 200:
        return PrometheusError(f"{base} answers with status {status} and {media}", _BASE)
    if answer is not None:
        what = "a JSON text without the status of a query"
    else:
        what = "half a JSON text, or none" if media == "application/json" else media
    return PrometheusError(f"{base} does not answer as Prometheus: {what}", _BASE)


def _series(one: Mapping[str, Any], pairs: list[Any]) -> Series:
    labels = one.get("metric")
    named = labels.items() if isinstance(labels, dict) else ()
    try:
        points = tuple((_time(time), _number(value)) for time, value in pairs)
    except (TypeError, ValueError, OverflowError) as problem:
        raise PrometheusError("Prometheus answers with a sample that is not a time and a number", _BASE) from problem
    return Series(labels={str(name): clean(str(value)) for name, value in named}, points=points)


def _time(value: Any) -> float:
    time = float(value)
    if not math.isfinite(time):
        raise ValueError(time)
    return time


def _number(text: object) -> float | None:
    number = float(str(text))
    return number if math.isfinite(number) else None


def _text(problem: object) -> str:
    return clean(str(getattr(problem, "strerror", None) or problem or type(problem).__name__), _MAX_REASON)


DIFFERENT = "docs/monitoring.md describes what is needed: labels `node` and `pool`, and honorLabels: true"


def named_clusters(prometheus: Prometheus, time: int, *, named: str, renamed: str) -> set[str]:
    """Return the labels `cluster` that the query `named` finds; refuse the metrics whose labels a scrape `renamed`."""
    others = sorted(one.labels.get("__name__", "?") for one in prometheus.at(renamed, time))
    if others:
        names = join_first(others)
        raise PrometheusError(f"{names}: the tenant's namespace is in the label exported_namespace", DIFFERENT)
    return {one.labels.get("cluster", "") for one in prometheus.at(named, time)}


def refuse_several(found: AbstractSet[str], cluster: str) -> None:
    """Refuse series of several clusters of which none is chosen."""
    if not cluster and len(found) > 1:
        several = join_first([name or "without the label" for name in sorted(found)])
        raise PrometheusError(f"Prometheus has series of several clusters: {several}", "--cluster NAME selects one")


def refuse_unknown(found: AbstractSet[str], cluster: str) -> None:
    """Refuse a chosen cluster that has no series."""
    if cluster and found and cluster not in found:
        named = sorted(filter(None, found))
        hint = f"it has {join_first(named)}" if named else "its series have no label `cluster`: leave --cluster out"
        raise PrometheusError(f"Prometheus has no series of cluster {cluster!r}", hint)


def label_value(one: Series, label: str, what: str) -> str:
    """Return a label of a series; `what` names the query."""
    if not one.labels.get(label):
        raise PrometheusError(f"{what}: Prometheus has series without the label {label}", DIFFERENT)
    return one.labels[label]
