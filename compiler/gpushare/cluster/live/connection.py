"""Server: GET requests to one API server, as the user's kubeconfig or as the pod's service account.

The cluster is found as kubectl does: what the call, KUBECONFIG and ~/.kube/config name. The only module that imports the
official client, which reads kubeconfigs, runs exec plugins and makes the pool of connections. Its typed models are not used:
they take a multiple of the time and memory of the JSON. Nothing but GET is ever sent.
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

from gpushare.cluster.live.pages import NoClusterError, RequestError, TooLargeError
from gpushare.core.wording import join_words, nearest
from gpushare_node.contract.struct import NOTHING, Struct


class Access(Struct):
    """What the call says about the cluster, as kubectl's options do; empty text: not given. `timeout_seconds` 0: no limit."""

    kubeconfig: str = ""
    context: str = ""
    user: str = ""
    groups: tuple[str, ...] = ()
    timeout_seconds: int = 30


class KubeContext(Struct):
    """One context of a kubeconfig: its default namespace, and the entry of its user."""

    namespace: str = ""
    user: Mapping[str, Any] = NOTHING


def files(access: Access, environ: Mapping[str, str], home: Path) -> str:
    """Return the kubeconfig's path or paths, as in KUBECONFIG."""
    return access.kubeconfig or environ.get("KUBECONFIG", "") or str(home / ".kube" / "config")


def find_context(config: Mapping[str, Any], wanted: str, where: str) -> tuple[str, KubeContext]:
    """Return the name and content of the wanted context, or of the current one. NoClusterError if there is none."""
    contexts = _named(config, "contexts", "context")
    name = wanted or str(config.get("current-context") or "")
    if not name:
        known = join_words(sorted(contexts), "or") if contexts else "none is defined"
        raise NoClusterError(f"{where} has no current context", f"name one with --context: {known}")
    if name not in contexts:
        like = nearest(name, contexts) or sorted(contexts)
        hint = f"did you mean {join_words(like, 'or')}?" if like else "the file defines no context"
        raise NoClusterError(f"{where} has no context {name!r}", hint)
    context = contexts[name]
    _check_server(config, name, context, where)
    user = _user_entry(config, name, context, where)
    return name, KubeContext(namespace=str(context.get("namespace") or ""), user=user)


_VIEW = "`kubectl config view` shows what it contains"


def _check_server(config: Mapping[str, Any], name: str, context: Mapping[str, Any], where: str) -> None:
    """NoClusterError if the context leads to no address. kubectl would ask localhost, or guess the protocol."""
    cluster, clusters = context.get("cluster"), _named(config, "clusters", "cluster")
    if not cluster:
        raise NoClusterError(f"context {name!r} in {where} names no cluster", _VIEW)
    if str(cluster) not in clusters:
        raise NoClusterError(f"{where} has no cluster {str(cluster)!r}, which context {name!r} names", _VIEW)
    server = clusters[str(cluster)].get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        problem = f"has the server {server!r}" if server else "has no server"
        raise NoClusterError(
            f"cluster {str(cluster)!r} in {where} {problem}", "write the address with its protocol: https://HOST:PORT"
        )


def _user_entry(config: Mapping[str, Any], name: str, context: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """Return the entry of the context's user; empty without one. NoClusterError if it is not there or no entry of a user."""
    user, users = context.get("user"), _named(config, "users", "user")
    if not user:
        return {}
    if str(user) not in users:
        raise NoClusterError(f"{where} has no user {str(user)!r}, which context {name!r} names", _VIEW)
    found = users[str(user)]
    plugin = found.get("exec")
    if plugin is not None and not (isinstance(plugin, dict) and isinstance(plugin.get("command"), str) and plugin["command"]):
        raise NoClusterError(f"the plugin of user {str(user)!r} in {where} has no command", "write users[].user.exec.command")
    return found


def impersonated(access: Access, user: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers that impersonate: --as and --as-group, or else what the kubeconfig's user entry says."""
    name, groups = access.user, list(access.groups)
    if not name:
        entry = user.get("as-groups")
        name, groups = str(user.get("as") or ""), groups or [str(one) for one in (entry if isinstance(entry, list) else ())]
    if groups and not name:
        raise NoClusterError("--as-group needs --as", "name the user with --as")
    return [("Impersonate-User", name), *(("Impersonate-Group", group) for group in groups)] if name else []


def _named(config: Mapping[str, Any], section: str, part: str) -> dict[str, Mapping[str, Any]]:
    entries = config.get(section)
    found = {}
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get(part) or {}, dict):
            found[str(entry.get("name"))] = entry.get(part) or {}
    return found


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
    where = files(access, os.environ, Path.home())
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
    headers = tuple(impersonated(access, {}))
    return Endpoint(settings=settings, headers=headers, name="the cluster of this pod", namespace=namespace)


def _from_kubeconfig(access: Access, where: str, folder: str) -> Endpoint:
    settings: Any = client.Configuration()
    load, merger = _typeless(config.load_kube_config), _typeless(KubeConfigMerger)
    with _logged() as messages:
        try:
            merged = merger(where).config
            name, context = find_context(_plain(merged, where), access.context, where)
            plugin = _plugin(context.user)
            load(config_file=where, context=name, client_configuration=settings, temp_file_path=folder)
        except NoClusterError:
            raise
        except Exception as problem:  # the client raises its own, PyYAML's, binascii's and the system's
            raise NoClusterError(f"cannot read {where}: {problem}", "`kubectl config view` shows what it contains") from problem
    if plugin and not settings.auth_settings() and not settings.cert_file:
        raise NoClusterError(f"the plugin {plugin} gave no credentials{': ' + messages[-1] if messages else ''}", _LOGIN)
    headers = tuple(impersonated(access, context.user))
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
