"""Reading from the API server as administrator, through `kubectl proxy`: for whoever looks again and again.

A kubectl at every look takes more of the machine than the cluster does. The proxy's socket lies in a folder, and so is
reached from every network namespace.
"""

import http.client
import socket
from pathlib import Path
from urllib.parse import urlencode

from tests.cluster.machine import MachineError


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self._path))


def read(proxy: Path, path: str, **query: str) -> bytes | None:
    """What the API server has at the path; None where there is no such thing. MachineError."""
    connection = _SocketConnection(proxy)
    try:
        connection.request("GET", f"{path}?{urlencode(query)}" if query else path)
        answer = connection.getresponse()
        body = answer.read()
    except OSError as error:
        raise MachineError(f"GET {path}: {error}") from error
    finally:
        connection.close()
    if answer.status == 404:
        return None
    if answer.status != 200:
        raise MachineError(f"GET {path}: {answer.status} {body.decode(errors='replace')[:200]}")
    return body
