"""What a cluster borrows from the machine: a network namespace, cgroups, processes. All is found again by the cluster's name.

Owns how these are made and how nothing of them is left, also after a crash. Knows nothing of Kubernetes.
"""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

NODE_ADDRESSES = tuple(f"198.51.100.{10 + number}" for number in range(4))
"""As many as a cluster may have nodes."""
SERVICES = "198.51.100.128/25"
API_SERVICE = "198.51.100.129"
POD_NETWORKS = tuple(f"203.0.113.{64 * number}/26" for number in range(4))

PATIENCE = 600.0
"""Seconds until a wait is given up. On a slow machine a cluster takes minutes; a wait is over as soon as it is true."""

_NAMESPACES = Path("/run/netns")
_CLONE_NEWNET = 0x40000000
"""Of sched.h: a namespace of networks."""
_CONNECTION_SECONDS = 30
_CGROUPS = Path("/sys/fs/cgroup")


class MachineError(Exception):
    """Something is missing here, or does not go away. The text says what."""


def run(*command: str | Path, check: bool = True) -> str:
    """Its output; CalledProcessError, with what it said, if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if check and done.returncode:
        raise MachineError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


class Network:
    """A network namespace of its own, with an address for each node. Two clusters may have the same addresses."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.path = _NAMESPACES / name

    def make(self) -> None:
        """Documentation ranges serve: nothing leaves the namespace. Both ends of the veth pair stand in it."""
        run("ip", "netns", "add", self.name)
        self._ip("link", "set", "lo", "up")
        # No kube-proxy is needed: the API server itself answers at the first service address.
        self._ip("address", "add", f"{API_SERVICE}/32", "dev", "lo")
        self._ip("link", "add", "nodes", "type", "veth", "peer", "name", "outside")
        for address in NODE_ADDRESSES:
            self._ip("address", "add", f"{address}/25", "dev", "nodes")
        for end in ("nodes", "outside"):
            self._ip("link", "set", end, "up")
        self._ip("route", "add", "default", "dev", "nodes")
        run(*self.command("sysctl", "-qw", "net.ipv4.ip_forward=1"))

    def _ip(self, *arguments: str) -> None:
        run("ip", "-n", self.name, *arguments)

    def command(self, *command: str | Path) -> tuple[str | Path, ...]:
        """The command inside. Not by `ip netns exec`: it mounts /sys anew, and kubelet finds no cgroups in it."""
        return ("nsenter", f"--net={self.path}", *command)

    def connect(self, address: str, port: int) -> socket.socket:
        """A TCP connection from inside it. A socket belongs to the namespace in which it was made: that of a thread, here."""
        with ThreadPoolExecutor(max_workers=1) as thread:
            return thread.submit(self._connect, address, port).result()

    def _connect(self, address: str, port: int) -> socket.socket:
        libc = ctypes.CDLL(None, use_errno=True)
        with self.path.open("rb") as namespace:
            if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                raise MachineError(f"{self.path} cannot be entered: {os.strerror(ctypes.get_errno())}")
        return socket.create_connection((address, port), timeout=_CONNECTION_SECONDS)

    def processes(self) -> Iterator[int]:
        """Everything that runs in it, pods' own network namespaces apart."""
        with contextlib.suppress(FileNotFoundError):
            own = self.path.stat().st_ino
            for entry in Path("/proc").iterdir():
                with contextlib.suppress(OSError):
                    if entry.name.isdigit() and (entry / "ns" / "net").stat().st_ino == own:
                        yield int(entry.name)

    def remove(self) -> None:
        """Nothing there is fine."""
        run("ip", "netns", "delete", self.name, check=False)


class Cgroup:
    """A cgroup of that name in every hierarchy of the machine, version 1 or 2, for one node's pods."""

    def __init__(self, name: str) -> None:
        self.name = name

    def make(self) -> None:
        """Version 1 needs its cpus and memory nodes spelt out before anything can run in it."""
        for folder in self._folders():
            folder.mkdir(exist_ok=True)
            for file in ("cpuset.cpus", "cpuset.mems"):
                source = folder.parent / file
                if source.is_file() and source.read_text().strip():
                    (folder / file).write_text(source.read_text())

    def _folders(self) -> list[Path]:
        if (_CGROUPS / "cgroup.controllers").is_file():
            return [_CGROUPS / self.name]
        return [hierarchy / self.name for hierarchy in _CGROUPS.iterdir() if hierarchy.is_dir() and not hierarchy.is_symlink()]

    def processes(self) -> set[int]:
        """Everything that runs in it and below."""
        found = set()
        for cgroup in self._below():
            with contextlib.suppress(OSError):
                found |= {int(line) for line in (cgroup / "cgroup.procs").read_text().split()}
        return found

    def _below(self) -> list[Path]:
        """All cgroups of the machine, parents first. One that kubelet removes meanwhile is left out, as `os.walk` does."""
        return [Path(path) for folder in self._folders() for path, _, _ in os.walk(folder)]

    def remove(self) -> None:
        """Deepest first, as cgroups want it."""
        for cgroup in reversed(self._below()):
            with contextlib.suppress(FileNotFoundError):
                cgroup.rmdir()


def start(command: Sequence[str | Path], log: Path, environment: dict[str, str] | None = None) -> int:
    """Start a program of a cluster; its pid. It outlives the caller."""
    with log.open("ab") as file:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    # Nobody waits for it: the collector must not complain that it still runs.
    process.returncode = 0
    return process.pid


def stop(pids: Sequence[int], *, seconds: float) -> None:
    """End them, and be sure: SIGTERM, then SIGKILL to those that are left after the time."""
    for number, patience in ((signal.SIGTERM, seconds), (signal.SIGKILL, 10)):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
        deadline = time.monotonic() + patience
        while (pids := [pid for pid in pids if is_running(pid)]) and time.monotonic() < deadline:
            time.sleep(0.02)
        if not pids:
            return
    raise MachineError(f"does not end: {pids}")


def is_running(pid: int) -> bool:
    """Whether there is such a process, and it is not a zombie. One whose other threads are still ending holds its ports."""
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
    try:
        has_ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"Z", "X"}
        return not has_ended or len([*Path(f"/proc/{pid}/task").iterdir()]) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False
