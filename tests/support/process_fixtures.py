"""Real processes for tests, and a /proc of which only the cgroups are made up.

Whoever is started here leads a session of its own, as tenants do: nothing is sent to our own process group.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.files import ProcFiles
from tests.support.waiting import PATIENCE, wait_for

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes namespaces and changes its root or user")

POD_A = "11111111-aaaa-4aaa-8aaa-111111111111"
POD_B = "22222222-bbbb-4bbb-8bbb-222222222222"
CONTAINER_A = "a" * 64
CONTAINER_B = "b" * 64

_open = os.pidfd_open
"""Kept, for some tests take it away from the code under test."""

_FILES = ("stat", "comm", "status", "maps", "ns", "fd")
_SLEEP_SECONDS = 3600
"""Longer than any test waits: nobody ends by itself who is to be ended, or to be left alone."""

_READY = "import sys, time, os, signal\nsys.stdout.write('ready\\n'); sys.stdout.flush()\n"
SLEEPING = f"{_READY}time.sleep({_SLEEP_SECONDS})"
IGNORING_SIGTERM = f"import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n{SLEEPING}"
GRACEFUL = f"import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n{SLEEPING}"
CHANGING = f"{_READY}sys.stdin.readline(); os.execv('/bin/sleep', ['sleep', '{_SLEEP_SECONDS}'])"
"""exec when it is told a line."""
NAMED = f"import ctypes, sys\nctypes.CDLL(None).prctl(15, bytes.fromhex(sys.argv[1]), 0, 0, 0)\n{SLEEPING}"
"""PR_SET_NAME with any bytes, given in hex."""
NOT_REAPING = f"""import os, time
child = os.fork()
if child:
    print(child, flush=True)
time.sleep({_SLEEP_SECONDS})"""
"""Has a child that it never reaps, and tells its pid."""
RESPAWNING = """import os, sys, time
for _ in range(400):
    if os.fork():
        time.sleep(0.05)
        os._exit(0)"""
"""Moves on to a new pid twenty times a second."""


def systemd_path(pod: str = POD_A, container: str = CONTAINER_A) -> str:
    """A burstable pod's container under containerd and the systemd driver."""
    slice_name = f"kubepods-burstable-pod{pod.replace('-', '_')}.slice"
    return f"/kubepods.slice/kubepods-burstable.slice/{slice_name}/cri-containerd-{container}.scope"


def await_exit(pid: int, seconds: float = PATIENCE) -> None:
    """Until the process, ours or not, has ended; a zombie has."""
    try:
        held = _open(pid)
    except ProcessLookupError:
        return
    try:
        wait_for(lambda: select.select([held], [], [], 0)[0], f"the end of {pid}", seconds)
    finally:
        os.close(held)


class ProcessPool:
    """Everyone who was started; they end with it."""

    def __init__(self) -> None:
        self._started: list[subprocess.Popen[str]] = []

    def start(self, code: str, *arguments: str) -> "subprocess.Popen[str]":
        """A Python process that runs this."""
        return self.run(sys.executable, "-IS", "-c", code, *arguments)

    def run(self, *command: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True, bufsize=1
        )
        self._started.append(process)
        return process

    def pid(self, code: str, *arguments: str) -> int:
        """The pid of one that is ready."""
        process = self.start(code, *arguments)
        assert said(process) == "ready"
        return process.pid

    def close(self) -> None:
        for process in self._started:
            # With its children, who have its output open.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._started:
            process.communicate()


def said(process: "subprocess.Popen[str]") -> str:
    """The next line that it has said."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def tell(process: "subprocess.Popen[str]", line: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")


def children(pid: int) -> tuple[int, ...]:
    return tuple(int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split())


@contextmanager
def open_process_pool() -> Iterator[ProcessPool]:
    """Everyone started in it is gone after it."""
    everyone = ProcessPool()
    try:
        yield everyone
    finally:
        everyone.close()


class FakeProc:
    """A /proc whose processes are real and whose cgroups are what the test says. The reader runs in `own`."""

    def __init__(self, root: Path, own: str = "0::/system.slice/agent.service\n") -> None:
        self.root = root
        self._write("self", own)
        (root / "self/ns").mkdir()
        (root / "self/ns/pid").symlink_to(f"pid:[{0xEFFFFFFC}]")
        (root / "sys/kernel").mkdir(parents=True)
        (root / "sys/kernel/pid_max").write_text("4194304\n")

    def show(self, pid: int, path: str) -> int:
        """Show this real process in this cgroup (v2), or move it there."""
        folder = self._write(str(pid), f"0::{path}\n")
        for name in _FILES:
            if not os.path.lexists(folder / name):
                (folder / name).symlink_to(f"/proc/{pid}/{name}")
        return pid

    def fake(self, pid: int, name: str, text: str | bytes) -> None:
        """Put made-up text in place of one of a process's files."""
        file = self.root / str(pid) / name
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())

    def hide(self, pid: int) -> None:
        """Show no such process any more."""
        shutil.rmtree(self.root / str(pid))

    def open_nothing(self, pid: int) -> None:
        """Show the process without an open file."""
        folder = self.root / str(pid) / "fd"
        if not folder.is_dir() or folder.is_symlink():
            folder.unlink(missing_ok=True)
            folder.mkdir()

    def _write(self, name: str, text: str) -> Path:
        folder = self.root / name
        folder.mkdir(exist_ok=True)
        (folder / "cgroup").write_text(text)
        return folder


class MemoryProc(FakeProc):
    """A FakeProc whose made-up texts are in memory, and whose processes have no file open. Read it by `MemoryFiles`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.texts: dict[str, bytes] = {}
        self.shown: dict[int, None] = {}

    def show(self, pid: int, path: str) -> int:
        if pid not in self.shown:
            self.shown[super().show(pid, path)] = None
        self.fake(pid, "cgroup", f"0::{path}\n")
        return pid

    def fake(self, pid: int, name: str, text: str | bytes) -> None:
        self.texts[f"{pid}/{name}"] = text if isinstance(text, bytes) else text.encode()

    def open_nothing(self, pid: int) -> None:
        """As ever."""


class MemoryFiles(ProcFiles):
    """The files of a MemoryProc: a tenth of the time of a FakeProc's, by the same parsers."""

    def __init__(self, proc: MemoryProc) -> None:
        super().__init__(proc.root)
        self._proc = proc

    def pids(self) -> tuple[int, ...]:
        return tuple(self._proc.shown)

    def maps(self, pid: int, parts: Collection[bytes]) -> bool | None:
        return any(part in self._proc.texts[f"{pid}/maps"] for part in parts)

    def has_open(self, _pid: int, _majors: Container[int], _seconds: float) -> bool | None:
        return False

    def _read(self, name: str, size: int | None = None) -> bytes | None:
        text = self._proc.texts.get(name)
        return super()._read(name, size) if text is None else text[:size]


def open_files() -> int:
    """How many descriptors this process has open."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def stat_line(pid: int, *, comm: str = "python3", start_time: int = 1000, flags: int = 0, state: str = "S") -> str:
    """A line of /proc/PID/stat as Linux 6 writes it."""
    numbers = [0] * 49
    numbers[5], numbers[16], numbers[18] = flags, 1, start_time
    return f"{pid} ({comm}) {state} {' '.join(map(str, numbers))}\n"
