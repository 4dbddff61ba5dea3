"""Server: GET requests to one API server, as the user's kubeconfig or as the pod's service account.

The only module that imports the official client, which reads kubeconfigs, runs exec plugins and makes the pool of connections.
Its typed models are not used: they take a multiple of the time and memory of the JSON. Nothing but GET is ever sent.
"""

import json
import logging
import os
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import urllib3
from kubernetes import client, config
from kubernetes.client.rest import RESTClientObject
from kubernetes.config.kube_config import KubeConfigMerger

from gpushare.cluster.live import kubeconfig
from gpushare.cluster.live.errors import NoClusterError, RequestError, TooLargeError
from gpushare.cluster.live.kubeconfig import Access
from gpushare_node.contract.struct import Struct

Json = dict[str, Any]

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_MAX_BYTES = 64 << 20
_CHUNK = 1 << 20
_MAX_REASON = 300
_MAX_CONNECT_SECONDS = 10.0
_LOGIN = "log in again, or renew the credentials of this context; `kubectl auth whoami` shows whether they work"


class Endpoint(Struct):
    """Where the server is, and as whom we ask: the official client's settings, and the headers that impersonate."""

    settings: Any
    headers: tuple[tuple[str, str], ...]
    name: str
    namespace: str


class Server:
    """One API server. Thread-safe. `name` is for messages, `namespace` the context's own."""

    def __init__(self, endpoint: Endpoint, timeout_seconds: float) -> None:
        self.name = endpoint.name
        self.namespace = endpoint.namespace or "default"
        self._endpoint = endpoint
        self._timeout = timeout_seconds or None
        self._pool = _pool(endpoint)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """Return the object or list at the path. RequestError if the server refuses it, NoClusterError if none can succeed."""
        data = self.read(path, query, most_bytes=_MAX_BYTES, timeout_seconds=self._timeout)
        try:
            found = json.loads(data)
        except (ValueError, RecursionError) as problem:
            raise RequestError(f"the answer is not JSON: {type(problem).__name__}") from problem
        if not isinstance(found, dict):
            raise RequestError("the answer is not a JSON object")
        return found

    def read(
        self, path: str, query: Mapping[str, str] | None = None, *, most_bytes: int, timeout_seconds: float | None
    ) -> bytes:
        """Return the body of the answer. TooLargeError if it is longer than `most_bytes`; else as `get`."""
        url = self._endpoint.settings.host + path + (f"?{urlencode(query, errors='replace')}" if query else "")
        connect = min(timeout_seconds or _MAX_CONNECT_SECONDS, _MAX_CONNECT_SECONDS)
        timeout = urllib3.Timeout(connect=connect, read=timeout_seconds, total=timeout_seconds)
        end = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        try:
            # A redirect would send the credentials elsewhere.
            answer = self._pool.request(
                "GET", url, headers=self._headers(), timeout=timeout, preload_content=False, retries=False, redirect=False
            )
            try:
                data = _bounded(answer, most_bytes, end)
            finally:
                answer.release_conn()
        except TimeoutError as problem:  # a server that sends a byte now and then never reaches the socket's own timeout
            raise RequestError(f"no complete answer within {timeout_seconds:g} s; --request-timeout waits longer") from problem
        except urllib3.exceptions.HTTPError as problem:
            raise self._unreachable(problem) from problem
        except (OSError, ValueError) as problem:
            raise NoClusterError(f"cannot query {self.name}: {problem}") from problem
        if answer.status != 200:
            raise self._refused(answer.status, data)
        return data

    def close(self) -> None:
        """Close all connections."""
        self._pool.clear()

    def _headers(self) -> Any:
        headers = urllib3.HTTPHeaderDict({"Accept": "application/json"})
        for one in self._endpoint.settings.auth_settings().values():
            headers.add(one["key"], one["value"])
        for name, value in self._endpoint.headers:
            headers.add(name, value)
        if not all(_is_header_value(value) for value in headers.values()):  # urllib3's own message would have the token in it
            hint = "write the token of this user in the kubeconfig on one line; a user or group has no control characters"
            raise NoClusterError(f"the credentials of {self.name} contain a line break or a character that no header has", hint)
        return headers

    def _refused(self, status: int, data: bytes) -> Exception:
        reason = _reason(data) or f"status {status}"
        if status == 401:
            return NoClusterError(f"{self.name} does not accept the credentials (401): {reason}", _LOGIN)
        return RequestError(f"{status}: {reason}", status)

    def _unreachable(self, problem: Exception) -> Exception:
        kinds = urllib3.exceptions
        if isinstance(problem, kinds.SSLError):
            hint = "check certificate-authority and server in the kubeconfig; a proxy may replace the certificate"
            return NoClusterError(f"{self.name}: TLS failed: {problem}", hint)
        if isinstance(problem, kinds.ReadTimeoutError):
            return RequestError(
                f"no answer within {self._timeout:g} s; --request-timeout waits longer"
                if self._timeout
                else "no answer in time"
            )
        if isinstance(problem, kinds.ProtocolError | kinds.DecodeError):
            return RequestError(f"the connection broke: {problem}")
        hint = "check the server's address in the kubeconfig, the network, a VPN and HTTPS_PROXY"
        return NoClusterError(f"cannot reach {self.name} at {self._endpoint.settings.host}: {problem}", hint)


def _is_header_value(text: str) -> bool:
    return all(" " <= character <= "\xff" and character != "\x7f" for character in text)


def _pool(endpoint: Endpoint) -> Any:
    """Return the pool of connections. NoClusterError if the kubeconfig's proxy is one that urllib3 needs a package for."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return RESTClientObject(endpoint.settings).pool_manager
    except ImportError as problem:
        if problem.name != "socks":
            raise
        message = f"the proxy of {endpoint.name} speaks SOCKS, which needs the package PySocks"
        raise NoClusterError(message, "install it: pip install PySocks") from problem


def _bounded(answer: Any, most_bytes: int, end: float | None) -> bytes:
    """Return the body. TooLargeError, TimeoutError after `end` on the monotonic clock."""
    parts, size = [], 0
    read = getattr(answer, "read1", answer.read)  # from urllib3 2.2 on: what has arrived
    while part := read(_CHUNK):
        size += len(part)
        if end is not None and time.monotonic() > end:
            answer.close()
            raise TimeoutError
        if size > most_bytes:
            answer.close()
            raise TooLargeError(f"the answer is larger than {most_bytes >> 20} MiB")
        parts.append(part)
    return b"".join(parts)


def _reason(data: bytes) -> str:
    """Return the message of a Status document, or the first line of another answer."""
    try:
        status = json.loads(data)
        return str(status["message"])[:_MAX_REASON]
    except (ValueError, KeyError, TypeError, RecursionError):
        return data[:_MAX_REASON].decode(errors="replace").split("\n", 1)[0].strip()


@contextmanager
def connected(access: Access) -> Iterator[Server]:
    """Yield the server that kubectl would use. NoClusterError, with a way out, if there is none."""
    # The official client writes certificates and keys to files, and removes them only when the interpreter ends normally.
    with tempfile.TemporaryDirectory(prefix="gpushare-") as folder:
        server = Server(_endpoint(access, folder), access.timeout_seconds)
        try:
            yield server
        finally:
            server.close()


def _endpoint(access: Access, folder: str) -> Endpoint:
    where = kubeconfig.files(access, os.environ, Path.home())
    paths = [Path(path) for path in where.split(os.pathsep) if path]
    if access.kubeconfig and not Path(access.kubeconfig).is_file():
        raise NoClusterError(f"there is no kubeconfig {access.kubeconfig}", "--kubeconfig names an existing file")
    if any(path.is_file() for path in paths):
        return _from_kubeconfig(access, where, folder)
    if os.environ.get("KUBERNETES_SERVICE_HOST") and not access.context:
        return _in_cluster(access)
    hint = "name a kubeconfig with --kubeconfig or KUBECONFIG; in a pod its service account is used"
    raise NoClusterError(f"no cluster: there is no kubeconfig at {where}", hint)


def _in_cluster(access: Access) -> Endpoint:
    settings: Any = client.Configuration()
    load: Any = config.load_incluster_config
    try:
        load(client_configuration=settings)
        namespace = (SERVICE_ACCOUNT / "namespace").read_text(encoding="utf-8").strip()
    except (config.ConfigException, OSError) as problem:
        hint = "set automountServiceAccountToken: true in the pod, or name a kubeconfig"
        raise NoClusterError(f"the pod has no service account that can be used: {problem}", hint) from problem
    headers = tuple(kubeconfig.impersonated(access, {}))
    return Endpoint(settings=settings, headers=headers, name="the cluster of this pod", namespace=namespace)


def _from_kubeconfig(access: Access, where: str, folder: str) -> Endpoint:
    settings: Any = client.Configuration()
    load, merger = _typeless(config.load_kube_config), _typeless(KubeConfigMerger)
    with _logged() as messages:
        try:
            merged = merger(where).config
            name, context = kubeconfig.find_context(_plain(merged, where), access.context, where)
            plugin = _plugin(context.user)
            load(config_file=where, context=name, client_configuration=settings, temp_file_path=folder)
        except NoClusterError:
            raise
        except Exception as problem:  # the client raises its own, PyYAML's, binascii's and the system's
            raise NoClusterError(f"cannot read {where}: {problem}", "`kubectl config view` shows what it contains") from problem
    if plugin and not settings.auth_settings() and not settings.cert_file:
        raise NoClusterError(f"the plugin {plugin} gave no credentials{': ' + messages[-1] if messages else ''}", _LOGIN)
    headers = tuple(kubeconfig.impersonated(access, context.user))
    return Endpoint(settings=settings, headers=headers, name=f"context {name!r}", namespace=context.namespace)


def _typeless(thing: Any) -> Any:
    return thing


def _plain(merged: Any, where: str) -> Mapping[str, Any]:
    """Return the merged kubeconfig without the client's own classes, which know from which file each entry is."""
    found = getattr(merged, "value", None)
    if not isinstance(found, dict):
        raise NoClusterError(f"{where} is not a kubeconfig", "`kubectl config view` shows what it contains")
    lists = {key: [getattr(one, "value", one) for one in value] for key, value in found.items() if isinstance(value, list)}
    return {**found, **lists}


def _plugin(user: Mapping[str, Any]) -> str:
    """Return the command of the user's exec plugin, empty without one. NoClusterError if it is not installed."""
    entry = user.get("exec")
    command = str(entry.get("command") or "") if isinstance(entry, dict) else ""
    if command and os.sep not in command and shutil.which(command) is None:
        hint = str(entry.get("installHint") or "") if isinstance(entry, dict) else ""
        hint = hint or f"install {command}, or add its folder to PATH"
        raise NoClusterError(f"the kubeconfig's plugin {command} is not installed", hint)
    return command


@contextmanager
def _logged() -> Iterator[list[str]]:
    """Collect what the official client logs instead of raising it, and keep it from stderr."""
    messages: list[str] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            messages.append(record.getMessage())

    handler, root = Handler(), logging.getLogger()
    root.addHandler(handler)
    try:
        yield messages
    finally:
        root.removeHandler(handler)
