"""AMD's own device plugin over a made-up /sys, and what it tells kubelet: its resources, each with its devices.

In a mount namespace of its own /sys and /var/lib/kubelet are folders of the test, so that nothing of the machine changes.
"""

import os
import subprocess
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc

from tests.e2e.cluster.plugin import wire
from tests.support.waiting import wait_for

PROGRAM = "k8s-device-plugin"
_START = """
mount --bind "$1" /sys
mount -t tmpfs none /var/lib
mkdir /var/lib/kubelet
mount --bind "$2" /var/lib/kubelet
exec "$3" -logtostderr -resource_naming_strategy="$4"
"""
# A server in Go refuses a connection without an authority.
_OPTIONS = (("grpc.default_authority", "localhost"),)


def folder() -> Path | None:
    """The folder that the variable AMD names; None without it."""
    given = os.environ.get("AMD")
    return Path(given) if given else None


def program() -> Path:
    """AMD's plugin. FileNotFoundError if the folder lacks it."""
    given = folder()
    if given is None or not (given / PROGRAM).is_file():
        raise FileNotFoundError(f"set AMD to a folder with AMD's {PROGRAM}")
    return (given / PROGRAM).resolve()


class Kubelet:
    """Takes registrations in its folder, and the first list of devices of each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._sockets = root / "device-plugins"
        self._sockets.mkdir(parents=True)
        self._registered: list[tuple[str, str]] = []
        self._offered: dict[str, frozenset[str]] = {}
        self._streams: list[tuple[grpc.Channel, Any]] = []
        self._server = grpc.server(futures.ThreadPoolExecutor(max_workers=8))
        register = grpc.unary_unary_rpc_method_handler(self._register)
        handler = grpc.method_handlers_generic_handler("v1beta1.Registration", {"Register": register})
        self._server.add_generic_rpc_handlers((handler,))

    @contextmanager
    def running(self) -> Iterator[None]:
        self._server.add_insecure_port(f"unix://{self._sockets}/kubelet.sock")
        self._server.start()
        try:
            yield
        finally:
            for channel, _ in self._streams:
                channel.close()
            self._server.stop(grace=0.5).wait(timeout=2)

    def _register(self, request: bytes, _context: grpc.ServicerContext) -> bytes:
        self._registered.append(wire.registration(request))
        return b""

    def offered(self) -> dict[str, frozenset[str]]:
        """The ids of each resource that is registered by now."""
        for socket, resource in self._registered[len(self._offered) :]:
            channel = grpc.insecure_channel(f"unix://{self._sockets}/{socket}", options=_OPTIONS)
            stream = channel.unary_stream("/v1beta1.DevicePlugin/ListAndWatch")(b"", timeout=60)
            # Kept, because the plugin exits if a stream ends.
            self._streams.append((channel, stream))
            self._offered[resource] = frozenset(wire.devices(next(stream)))
        return self._offered


def offered(root: Path, sysfs: Path, strategy: str, devices: int) -> dict[str, frozenset[str]]:
    """What the plugin offers once it offers so many devices. Raises AssertionError with its words if it exits before."""
    kubelet = Kubelet(root)
    command = ["unshare", "--mount", "--propagation", "private", "sh", "-euc", _START, "-", str(sysfs), str(root)]
    with kubelet.running(), (root / "log").open("wb") as log:
        process = subprocess.Popen([*command, str(program()), strategy], stdout=log, stderr=log)
        try:
            return wait_for(lambda: _all_of(kubelet, process, devices), "the whole offer")
        finally:
            process.kill()
            process.wait()


def _all_of(kubelet: Kubelet, process: subprocess.Popen[bytes], devices: int) -> dict[str, frozenset[str]]:
    """What the plugin offers; empty as long as it offers fewer devices."""
    assert process.poll() is None, (kubelet.root / "log").read_text()
    found = kubelet.offered()
    return found if sum(map(len, found.values())) >= devices else {}
