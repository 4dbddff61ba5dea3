"""How the runtime of a chaos run reaches the world: requests without sockets, a disk that fills up, a watched driver.

Each asks the node before it has an effect, so that the program can die there; and really killed programs, in processes of
their own.
"""

import errno
import io
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Protocol
from urllib.parse import urlsplit

from gpushare_node.adapters.host.state_dir import Files
from gpushare_node.adapters.kube.connection import Connection
from gpushare_node.contract.policy import Policy
from gpushare_node.vendors.driver import GpuInfo, Versions
from gpushare_node.vendors.nvidia.session import Session
from tests.node.reconcile.loop_node import LoopNode
from tests.support.fake_api.handler import Handler
from tests.support.fake_api.server import ApiServer


class World(Protocol):
    """What these ask of the node. Each method may raise Killed."""

    api: ApiServer
    is_disk_full: bool
    disk_writes: int
    has_driver_faults: bool
    seen: tuple[GpuInfo, ...] | None

    def live(self) -> None: ...

    def effect(self) -> None: ...

    def asking(self, method: str, path: str) -> Any: ...

    def changing(self, call: str, uuid: str, *args: Any, **named: Any) -> None: ...


class Killed(BaseException):
    """The program is dead; not one line of it should run any more."""


class _Wire(Handler):
    """One request, without its connection."""

    def __init__(self, api: ApiServer, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        self.server = SimpleNamespace(api=api)
        self.command, self.path, self.rfile = method, target, io.BytesIO(body)
        self.headers: Any = {**headers, "Content-Length": len(body)}
        self.answer: tuple[int, bytes, dict[str, str]] | None = None

    def _send(self, status: int, data: bytes) -> None:
        after = {} if self._retry_after is None else {"Retry-After": str(self._retry_after)}
        self.answer = status, data, after


class Pool:
    """What `Connection` needs of urllib3's pool."""

    def __init__(self, node: "World") -> None:
        self._node = node

    def request(self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, **_: object) -> Any:
        parts = urlsplit(url)
        with self._node.asking(method, parts.path):
            wire = _Wire(self._node.api, method, f"{parts.path}?{parts.query}", headers, body or b"")
            wire._serve()
        if wire.answer is None:
            raise OSError("connection reset")
        status, data, after = wire.answer
        return SimpleNamespace(status=status, reason="", headers=after, read=lambda: data, close=lambda: None)

    def clear(self) -> None:
        """Nothing is open."""


class Disk(Files):
    """The folder's files, on a disk that may be full, for a program that may die."""

    def __init__(self, path: Path, node: "World") -> None:
        super().__init__(path)
        self._node = node

    def write(self, name: str, content: bytes) -> None:
        self._node.effect()
        if self._node.is_disk_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), name)
        self._node.disk_writes += 1
        super().write(name, content)

    def delete(self, name: str) -> None:
        self._node.effect()
        super().delete(name)


class CheckedDriver:
    """A session whose changes are looked at before they are made. What nobody has changed is not surveyed again."""

    def __init__(self, node: "World") -> None:
        self._node = node
        self._session = Session.open()

    def survey(self) -> tuple[GpuInfo, ...]:
        node = self._node
        node.live()
        if node.has_driver_faults or node.seen is None:
            node.seen = None
            seen = self._session.survey()
            node.seen = None if node.has_driver_faults else seen
            return seen
        return node.seen

    def versions(self) -> Versions:
        return self._session.versions()

    def __getattr__(self, call: str) -> Any:
        def change(uuid: str, *args: object, **named: Any) -> Any:
            self._node.changing(call, uuid, *args, **named)
            return getattr(self._session, call)(uuid, *args, **named)

        return change

    def close(self) -> None:
        self._session.close()


def run_until_killed(node: LoopNode, policy: Policy, number: int) -> bool:
    """Run in a process of its own that is killed at its effect of this number: a call, a request, a file. Whether it was."""
    child = os.fork()
    if child == 0:
        lives = iter(range(number))

        def die_in_time(owner: type, name: str, is_effect: Callable[..., bool] = lambda *_: True) -> None:
            original = getattr(owner, name)

            def act(*args: Any, **named: Any) -> Any:
                if is_effect(*args) and next(lives, None) is None:
                    os.kill(os.getpid(), signal.SIGKILL)
                return original(*args, **named)

            setattr(owner, name, act)

        for call in ("set_mig", "create_instance", "create_compute", "destroy_compute", "destroy_instance"):
            die_in_time(Session, call)
        die_in_time(Files, "write")
        die_in_time(Files, "delete")
        die_in_time(Connection, "ask", lambda _, request: request.method != "GET")
        node.fake_nvml.load()
        try:
            node.run(policy)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)
