"""Signals to real processes: the one that was meant, or nobody."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.adapters.procs import linux
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import ProcessIdentity, Signal, SignalResult
from gpushare_node.contract.struct import replace
from tests.support.process_fixtures import (
    CHANGING,
    CONTAINER_B,
    GRACEFUL,
    IGNORING_SIGTERM,
    NOT_REAPING,
    POD_B,
    SLEEPING,
    FakeProc,
    ProcessPool,
    await_exit,
    children,
    needs_root,
    open_files,
    said,
    stat_line,
    systemd_path,
    tell,
)
from tests.support.waiting import PATIENCE, wait_for


@pytest.fixture
def processes(fake_proc: FakeProc) -> LinuxProcesses:
    return LinuxProcesses(fake_proc.root)


@pytest.fixture(params=["pidfd", "no pidfd_open", "no pidfd_send_signal"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Kernels and seccomp profiles without pidfd answer ENOSYS or EPERM."""

    def refuse(number: int) -> Callable[..., int]:
        def call(*_: object) -> int:
            raise OSError(number, os.strerror(number))

        return call

    if request.param == "no pidfd_open":
        monkeypatch.setattr(os, "pidfd_open", refuse(errno.ENOSYS))
    elif request.param == "no pidfd_send_signal":
        monkeypatch.setattr(signal, "pidfd_send_signal", refuse(errno.EPERM))
    return str(request.param)


def look(processes: LinuxProcesses, pid: int) -> ProcessIdentity:
    return processes.look([pid])[pid]


def is_alive(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_a_signal_reaches_the_process_that_was_seen(
    way: str, fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    process = process_pool.start(GRACEFUL)
    assert said(process) == "ready"
    seen = look(processes, fake_proc.show(process.pid, systemd_path()))
    assert processes.send(seen, Signal.TERM) is SignalResult.SENT
    assert process.wait(PATIENCE) == 7
    assert processes.has_ended(seen)
    assert processes.send(seen, Signal.KILL) is SignalResult.GONE


@pytest.mark.failure_case(37)
def test_sigkill_ends_a_process_that_ignores_sigterm(
    way: str, fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    pid = process_pool.pid(IGNORING_SIGTERM)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    assert processes.send(seen, Signal.TERM) is SignalResult.SENT
    assert not processes.has_ended(seen)
    assert processes.send(seen, Signal.KILL) is SignalResult.SENT
    await_exit(pid)


@pytest.mark.failure_case(37)
@needs_root
def test_the_first_process_of_a_pid_namespace_needs_sigkill(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    outer = process_pool.run("unshare", "-pf", "--kill-child", "sleep", "30").pid
    wait_for(lambda: children(outer))
    (inner,) = children(outer)
    wait_for(lambda: Path(f"/proc/{inner}/comm").read_text() == "sleep\n")
    seen = look(processes, fake_proc.show(inner, systemd_path()))
    assert processes.send(seen, Signal.TERM) is SignalResult.SENT
    with pytest.raises(AssertionError, match="never came true"):
        await_exit(inner, 0.2)
    assert processes.send(seen, Signal.KILL) is SignalResult.SENT
    await_exit(inner)


@pytest.mark.failure_case(39)
def test_reused_pid_gets_no_signal(way: str, fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool) -> None:
    pid = process_pool.pid(SLEEPING)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    assert processes.send(replace(seen, start_time=seen.start_time - 1), Signal.KILL) is SignalResult.REUSED
    assert is_alive(pid)


@pytest.mark.failure_case(39)
def test_pid_reused_while_opening_the_pidfd_gets_no_signal(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = process_pool.pid(SLEEPING)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    opened = os.pidfd_open

    def reuse(number: int) -> int:
        fake_proc.fake(number, "stat", stat_line(number, start_time=seen.start_time + 1))
        return opened(number)

    monkeypatch.setattr(os, "pidfd_open", reuse)
    assert processes.send(seen, Signal.KILL) is SignalResult.REUSED
    assert is_alive(pid)


def test_process_now_in_another_container_gets_no_signal(
    way: str, fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    pid = process_pool.pid(SLEEPING)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    for path in (systemd_path(POD_B), systemd_path(container=CONTAINER_B), "/system.slice/sshd.service"):
        fake_proc.show(pid, path)
        assert processes.send(seen, Signal.KILL) is SignalResult.REUSED
    assert is_alive(pid)


def test_process_that_moves_within_its_container_is_killed(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    pid = process_pool.pid(SLEEPING)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    fake_proc.show(pid, f"{systemd_path()}/kubepods{systemd_path(POD_B, CONTAINER_B)}")
    assert processes.send(seen, Signal.KILL) is SignalResult.SENT
    await_exit(pid)


@pytest.mark.failure_case(40)
def test_exec_keeps_the_process_identity(fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool) -> None:
    process = process_pool.start(CHANGING)
    assert said(process) == "ready"
    seen = look(processes, fake_proc.show(process.pid, systemd_path()))
    before = processes.details(process.pid)
    tell(process, "go")
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    assert look(processes, process.pid) == seen
    assert processes.details(process.pid) != before
    assert processes.send(seen, Signal.KILL) is SignalResult.SENT
    await_exit(process.pid)


@pytest.mark.failure_case(41)
def test_zombie_counts_as_exited_and_gets_no_signal(
    way: str, fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    child = fake_proc.show(int(said(process_pool.start(NOT_REAPING))), systemd_path())
    seen = look(processes, child)
    assert processes.send(seen, Signal.KILL) is SignalResult.SENT
    await_exit(child)
    assert processes.send(seen, Signal.KILL) is SignalResult.GONE
    assert processes.has_ended(seen)


@pytest.mark.failure_case(43)
@needs_root
@pytest.mark.parametrize("drop", ["os.setuid(65534)", "drop(5)"], ids=["another user", "without CAP_KILL"])
def test_signalling_without_permission_is_reported(fake_proc: FakeProc, process_pool: ProcessPool, drop: str) -> None:
    """A process apart gives up its rights, CAP_KILL alone (number 5) or all of them, and then tries."""
    pid = process_pool.pid(SLEEPING)
    fake_proc.show(pid, systemd_path())
    for folder in (fake_proc.root, *fake_proc.root.parents):
        if not folder.stat().st_mode & 0o001:
            folder.chmod(0o755)
    code = f"""
import ctypes, os, struct, sys
from pathlib import Path
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import Signal

def drop(capability):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(8, 1, 0, 0, 0)
    os.setresuid(65534, 65534, 65534)
    header = struct.pack("Ii", 0x20080522, 0)
    sets = ctypes.create_string_buffer(24)
    assert libc.capget(header, sets) == 0
    words = list(struct.unpack("6I", sets.raw))
    words[0] = words[1] & ~(1 << capability)
    words[1] = words[0]
    assert libc.capset(header, struct.pack("6I", *words)) == 0

processes = LinuxProcesses(Path(sys.argv[1]))
seen = processes.look([int(sys.argv[2])])[int(sys.argv[2])]
{drop}
print(processes.send(seen, Signal.KILL).value)
"""
    told = subprocess.run(
        [sys.executable, "-c", code, str(fake_proc.root), str(pid)], capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "refused"
    assert is_alive(pid)


@pytest.mark.failure_case(47)
@pytest.mark.parametrize("whose", [-1, 0, 1, 2, None])
def test_init_kthreadd_and_own_process_are_never_signalled(
    way: str, fake_proc: FakeProc, processes: LinuxProcesses, monkeypatch: pytest.MonkeyPatch, whose: int | None
) -> None:
    pid = os.getpid() if whose is None else whose
    sent: list[int] = []
    monkeypatch.setattr(os, "kill", lambda number, _: sent.append(number))
    monkeypatch.setattr(signal, "pidfd_send_signal", lambda *_: sent.append(pid))
    fake_proc.show(pid, systemd_path())
    fake_proc.fake(pid, "stat", stat_line(pid))
    assert processes.send(look(processes, pid), Signal.KILL) is SignalResult.REFUSED
    assert sent == []


@pytest.mark.failure_case(47)
def test_own_process_group_is_never_signalled(fake_proc: FakeProc, processes: LinuxProcesses) -> None:
    with subprocess.Popen(["sleep", "30"]) as child:
        try:
            seen = look(processes, fake_proc.show(child.pid, systemd_path()))
            assert processes.send(seen, Signal.KILL) is SignalResult.REFUSED
            assert is_alive(child.pid)
        finally:
            child.kill()


@pytest.mark.failure_case(47)
def test_kernel_thread_is_never_signalled(fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool) -> None:
    pid = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    fake_proc.fake(pid, "stat", stat_line(pid, flags=0x00200000))
    assert processes.send(look(processes, pid), Signal.KILL) is SignalResult.REFUSED
    assert is_alive(pid)


@pytest.mark.parametrize("path", ["/system.slice/sshd.service", "/", f"/machine.slice/libpod-{CONTAINER_B}.scope"])
def test_process_outside_pods_is_never_signalled(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool, path: str
) -> None:
    pid = fake_proc.show(process_pool.pid(SLEEPING), path)
    assert processes.send(look(processes, pid), Signal.KILL) is SignalResult.REFUSED
    assert is_alive(pid)


def test_own_container_is_never_signalled(tmp_path: Path, process_pool: ProcessPool) -> None:
    fake_proc = FakeProc(tmp_path, own=f"0::{systemd_path()}\n")
    pid = fake_proc.show(process_pool.pid(SLEEPING), f"{systemd_path()}/sub")
    processes = LinuxProcesses(fake_proc.root)
    assert processes.send(look(processes, pid), Signal.KILL) is SignalResult.REFUSED
    forged = replace(look(processes, pid), candidates=look_as_neighbour(tmp_path, pid).candidates)
    assert processes.send(forged, Signal.KILL) is SignalResult.REFUSED
    assert is_alive(pid)


def look_as_neighbour(root: Path, pid: int) -> ProcessIdentity:
    """How somebody in no container sees it."""
    (root / "self/cgroup").write_text("0::/\n")
    return look(LinuxProcesses(root), pid)


def test_thread_id_is_not_a_process(fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool) -> None:
    code = "import threading, time\nthreading.Thread(target=time.sleep, args=(30,)).start()\nprint('ready', flush=True)"
    pid = process_pool.pid(code)
    (thread,) = (int(task.name) for task in Path(f"/proc/{pid}/task").iterdir() if task.name != str(pid))
    seen = look(processes, fake_proc.show(thread, systemd_path()))
    assert processes.send(seen, Signal.KILL) is SignalResult.REUSED
    assert is_alive(pid)


def test_no_descriptor_is_left_open_by_any_outcome(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool
) -> None:
    pid = process_pool.pid(IGNORING_SIGTERM)
    seen = look(processes, fake_proc.show(pid, systemd_path()))
    before = open_files()
    for one in (seen, replace(seen, start_time=1), replace(seen, cgroup="/")):
        processes.send(one, Signal.TERM)
    processes.members(seen)
    processes.uses_gpu(pid)
    processes.details(pid)
    assert open_files() == before


def test_no_signal_is_sent_without_free_descriptors(
    fake_proc: FakeProc, processes: LinuxProcesses, process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = process_pool.pid(SLEEPING)
    seen = look(processes, fake_proc.show(pid, systemd_path()))

    def exhausted(_: int) -> int:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", exhausted)
    assert processes.send(seen, Signal.KILL) is SignalResult.REFUSED
    assert is_alive(pid)


def test_process_is_checked_after_its_pidfd_is_opened(monkeypatch: pytest.MonkeyPatch, process_pool: ProcessPool) -> None:
    order: list[str] = []
    threads = threading.active_count()
    opened, pid = os.pidfd_open, process_pool.pid(SLEEPING)

    def held(number: int) -> int:
        order.append("held")
        return opened(number)

    monkeypatch.setattr(os, "pidfd_open", held)

    def objection() -> SignalResult:
        order.append("looked")
        return SignalResult.REUSED

    assert linux.deliver(pid, Signal.KILL, objection) is SignalResult.REUSED
    assert order == ["held", "looked"]
    assert threading.active_count() == threads
