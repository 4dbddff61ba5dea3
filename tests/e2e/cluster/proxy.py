"""Asking the API server without a kubectl for each request: as administrator through `kubectl proxy`, or with a token.

A kubectl at every look takes more of the machine than the cluster does. The proxy's socket lies in a folder, and so is
reached from every network namespace.
"""

import http.client
import json
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.e2e.cluster.machine import PATIENCE, MachineError

_PATIENCE = 30
"""Seconds without a byte after which a connection is given up."""
_NOT_NOW = (http.HTTPStatus.TOO_MANY_REQUESTS, http.HTTPStatus.SERVICE_UNAVAILABLE, http.HTTPStatus.GATEWAY_TIMEOUT)


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=_PATIENCE)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the API server says to a request."""

    status: int
    body: bytes
    warnings: tuple[str, ...]

    @property
    def complaint(self) -> str:
        """What it answers to a request that it does not do, in whatever form; empty if it does it."""
        return "" if self.status < 300 else self.body.decode()

    @property
    def refusal(self) -> str:
        """Its words against the request; empty if it has none."""
        return "" if self.status < 300 else str(json.loads(self.body)["message"])


def send(
    proxy: Path,
    method: str,
    path: str,
    body: str | None = None,
    form: str = "application/json",
    *,
    headers: dict[str, str] | None = None,
) -> Answer:
    """The answer to a request; MachineError where there is none. `headers`: such as those that impersonate somebody."""
    return _answer(_SocketConnection(proxy), method, path, body, {"Content-Type": form, **(headers or {})})


def send_as(token: str, server: socket.socket, method: str, path: str, *, body: str, form: str) -> Answer:
    """The answer to a request of whoever has the token, over a connection to the server itself. MachineError."""
    connection = http.client.HTTPConnection("localhost")
    # The network namespace is the fence: nobody stands in between.
    connection.sock = ssl._create_unverified_context().wrap_socket(server)
    return _answer(connection, method, path, body, {"Content-Type": form, "Authorization": f"Bearer {token}"})


def watch(proxy: Path, path: str, **query: str) -> Iterator[Any]:
    """The events of a watch, until the API server ends it, which is after less than a connection's patience. MachineError."""
    connection = _SocketConnection(proxy)
    try:
        connection.request("GET", f"{path}?{urlencode({'watch': '1', 'timeoutSeconds': str(_PATIENCE - 5), **query})}")
        answer = connection.getresponse()
        if answer.status != 200:
            raise MachineError(f"watch {path}: {answer.status}")
        yield from map(json.loads, answer)
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise MachineError(f"watch {path}: {error}") from error
    finally:
        connection.close()


def _answer(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: str | None,
    headers: dict[str, str],
) -> Answer:
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        warnings = tuple(answer.headers.get_all("Warning") or ())
        return Answer(status=answer.status, body=answer.read(), warnings=warnings)
    except OSError as error:
        raise MachineError(f"{method} {path}: {error}") from error
    finally:
        connection.close()


def apply(proxy: Path, path: str, body: str) -> None:
    """Apply as `kubectl apply --server-side --force-conflicts` does, which takes many times as long. MachineError."""
    query = urlencode({"fieldManager": "kubectl", "force": "true", "fieldValidation": "Strict"})
    answer = _send_until_ready(proxy, "PATCH", f"{path}?{query}", body, "application/apply-patch+yaml")
    if answer.complaint:
        raise MachineError(f"apply {path}: {answer.complaint}")


def _send_until_ready(proxy: Path, method: str, path: str, body: str | None = None, form: str = "application/json") -> Answer:
    """As every client of Kubernetes, ask again where the server says that it is not ready to answer.

    It refuses a kind so while it starts to store the objects of a new definition, and any while its storage is too slow.
    """
    deadline = time.monotonic() + PATIENCE
    while (answer := send(proxy, method, path, body, form)).status in _NOT_NOW and time.monotonic() < deadline:
        time.sleep(1)
    return answer


def read(proxy: Path, path: str, **query: str) -> bytes | None:
    """What the API server has at the path; None where there is no such thing. MachineError."""
    answer = _send_until_ready(proxy, "GET", f"{path}?{urlencode(query)}" if query else path)
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise MachineError(f"GET {path}: {answer.status} {answer.body.decode(errors='replace')[:200]}")
    return answer.body
