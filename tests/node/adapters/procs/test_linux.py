"""What is read of /proc: real processes, and files that are made up where reality cannot be had on demand."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpushare_node.adapters.procs import linux
from gpushare_node.adapters.procs.files import ProcFiles
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import GpuUse, Processes
from gpushare_node.guard.inputs import ContainerId
from gpushare_node.vendors import DEVICE_MAJORS
from tests.support.hung_mount import unanswering
from tests.support.process_fixtures import (
    CONTAINER_B,
    NAMED,
    NOT_REAPING,
    POD_A,
    POD_B,
    RESPAWNING,
    SLEEPING,
    FakeProc,
    ProcessPool,
    await_exit,
    children,
    needs_root,
    said,
    stat_line,
    systemd_path,
)
from tests.support.waiting import wait_for


def test_a_real_process_is_seen_with_its_start_time_and_cgroup(process_pool: ProcessPool) -> None:
    processes: Processes = LinuxProcesses()
    pid = process_pool.pid(SLEEPING)
    seen = processes.look([pid])[pid]
    assert seen.start_time > processes.look([os.getppid()])[os.getppid()].start_time
    assert (seen.candidates, seen.is_kernel) == ((), False)
    assert seen.cgroup in Path(f"/proc/{pid}/cgroup").read_text()


def test_host_pid_namespace_is_recognised() -> None:
    assert LinuxProcesses().sees_host() == (Path("/proc/self/ns/pid").readlink().name == "pid:[4026531836]")


@pytest.mark.failure_case(52)
def test_a_pid_namespace_that_is_not_the_first_is_not_the_hosts(fake_proc: FakeProc) -> None:
    assert LinuxProcesses(fake_proc.root).sees_host()
    namespace = fake_proc.root / "self/ns/pid"
    namespace.unlink()
    assert not LinuxProcesses(fake_proc.root).sees_host()
    namespace.symlink_to("pid:[4026532999]")
    assert not LinuxProcesses(fake_proc.root).sees_host()


@pytest.mark.failure_case(52)
def test_pid_is_not_resolved_without_host_processes(fake_proc: FakeProc) -> None:
    assert LinuxProcesses(fake_proc.root).look([4321, 1 << 22]) == {}


@pytest.mark.failure_case(52)
@needs_root
def test_process_in_a_new_pid_namespace_does_not_see_the_host() -> None:
    program = "from gpushare_node.adapters.procs.linux import LinuxProcesses; print(LinuxProcesses().sees_host())"
    command = ["unshare", "-pf", "--mount-proc", sys.executable, "-c", program]
    told = subprocess.run(command, capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"


def test_pid_max_is_the_kernels_or_the_highest_possible(fake_proc: FakeProc) -> None:
    assert LinuxProcesses().pid_max() == int(Path("/proc/sys/kernel/pid_max").read_text())
    (fake_proc.root / "sys/kernel/pid_max").write_text("32768\n")
    assert LinuxProcesses(fake_proc.root).pid_max() == 32768
    (fake_proc.root / "sys/kernel/pid_max").write_text("many\n")
    assert LinuxProcesses(fake_proc.root).pid_max() == 1 << 22
    (fake_proc.root / "sys/kernel/pid_max").unlink()
    assert LinuxProcesses(fake_proc.root).pid_max() == 1 << 22


@pytest.mark.parametrize("comm", ["a) S 1 2 3", ")", "((", "x\ny) Z 0", "1 2 3 (", "\udcff"])
def test_the_start_time_is_counted_from_the_last_bracket(fake_proc: FakeProc, comm: str) -> None:
    line = stat_line(500, comm=comm, start_time=777).encode("utf-8", "surrogateescape")
    fake_proc.show(500, systemd_path())
    fake_proc.fake(500, "stat", line)
    assert LinuxProcesses(fake_proc.root).look([500])[500].start_time == 777


@pytest.mark.parametrize("line", ["", "500", "500 (x)", "500 (x) S 1 2", stat_line(500).replace("1000", "soon"), "\0" * 900])
def test_invalid_stat_line_gives_no_process(fake_proc: FakeProc, line: str) -> None:
    fake_proc.show(500, systemd_path())
    fake_proc.fake(500, "stat", line)
    assert LinuxProcesses(fake_proc.root).look([500]) == {}


@given(st.binary(max_size=1200))
def test_arbitrary_stat_content_raises_nothing(tmp_path_factory: pytest.TempPathFactory, line: bytes) -> None:
    fake_proc = FakeProc(tmp_path_factory.mktemp("proc"))
    fake_proc.show(500, systemd_path())
    fake_proc.fake(500, "stat", line)
    LinuxProcesses(fake_proc.root).look([500])


@pytest.mark.failure_case(47)
def test_a_kernel_thread_is_reported_by_the_kernels_own_flag(fake_proc: FakeProc) -> None:
    fake_proc.show(500, "/")
    fake_proc.fake(500, "stat", stat_line(500, comm="kworker/0:1-events", flags=0x00208040))
    assert LinuxProcesses(fake_proc.root).look([500])[500].is_kernel
    kthreadd = LinuxProcesses().look([2]).get(2)
    assert kthreadd is None or kthreadd.is_kernel


def test_process_is_reread_on_every_lookup(fake_proc: FakeProc) -> None:
    """A container's first process begins in its runtime's cgroup, and enters its own with the same pid and start time."""
    processes = LinuxProcesses(fake_proc.root)
    fake_proc.show(500, "/system.slice/containerd.service")
    fake_proc.fake(500, "stat", stat_line(500))
    assert processes.look([500])[500].candidates == ()
    fake_proc.show(500, systemd_path())
    assert processes.look([500])[500].candidates[0].pod_uid == POD_A
    fake_proc.show(500, systemd_path(POD_B, CONTAINER_B))
    fake_proc.fake(500, "stat", stat_line(500, start_time=1001))
    found = processes.look([500])[500]
    assert (found.start_time, found.candidates[0].pod_uid) == (1001, POD_B)


def test_process_that_exits_between_two_reads_is_not_returned(fake_proc: FakeProc) -> None:
    fake_proc.show(4_000_500, systemd_path())
    fake_proc.fake(4_000_500, "stat", stat_line(4_000_500))
    (fake_proc.root / "4000500/cgroup").unlink()
    assert LinuxProcesses(fake_proc.root).look([4_000_500]) == {}
    assert LinuxProcesses(fake_proc.root).details(4_000_500) is None
    assert LinuxProcesses(fake_proc.root).uses_gpu(4_000_500) is GpuUse.UNREADABLE


def test_container_members_include_nested_cgroups_and_no_other_process(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    processes = LinuxProcesses(fake_proc.root)
    pids = [process_pool.pid(SLEEPING) for _ in range(4)]
    for pid, path in zip(
        pids,
        [
            systemd_path(),
            f"{systemd_path()}/a/b",
            systemd_path(container=CONTAINER_B),
            f"{systemd_path(POD_B, CONTAINER_B)}{systemd_path()}",
        ],
        strict=True,
    ):
        fake_proc.show(pid, path)
    seen = processes.look(pids)
    assert {member.pid for member in processes.members(seen[pids[0]])} == {pids[0], pids[1]}
    assert {member.pid for member in processes.members(seen[pids[3]])} == {pids[3]}
    os.kill(pids[1], 9)
    await_exit(pids[1])
    assert {member.pid for member in processes.members(seen[pids[0]])} == {pids[0]}


def test_a_process_outside_pods_has_no_members_not_even_itself(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    pid = fake_proc.show(process_pool.pid(SLEEPING), "/system.slice/sshd.service")
    processes = LinuxProcesses(fake_proc.root)
    assert processes.members(processes.look([pid])[pid]) == ()


def test_processes_of_our_own_container_have_no_container(tmp_path: Path, process_pool: ProcessPool) -> None:
    fake_proc = FakeProc(tmp_path, own=f"0::{systemd_path()}\n")
    pid, neighbour = process_pool.pid(SLEEPING), process_pool.pid(SLEEPING)
    fake_proc.show(pid, f"{systemd_path()}/sub")
    fake_proc.show(neighbour, systemd_path(container=CONTAINER_B))
    seen = LinuxProcesses(fake_proc.root).look([pid, neighbour])
    assert seen[pid].candidates == ()
    assert seen[neighbour].candidates == (ContainerId(pod_uid=POD_A, container=CONTAINER_B),)


def test_gpu_use_is_detected_from_memory_mappings(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    pid = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    processes = LinuxProcesses(fake_proc.root)
    assert processes.uses_gpu(pid) is GpuUse.NO
    filler = b"7f00-7f01 r-xp 00000000 08:01 1 /usr/lib/x.so\n" * 3000
    for place in (1, 65_530, 65_536, 130_000):
        fake_proc.fake(pid, "maps", filler[:place] + b"/dev/nvidia0" + filler[place:])
        assert processes.uses_gpu(pid) is GpuUse.YES
    fake_proc.fake(pid, "maps", filler)
    assert processes.uses_gpu(pid) is GpuUse.NO
    (fake_proc.root / f"{pid}/maps").unlink()
    assert processes.uses_gpu(pid) is GpuUse.UNREADABLE


@pytest.mark.failure_case(78)
def test_unlistable_open_files_make_gpu_use_unreadable(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    pid = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    (fake_proc.root / f"{pid}/fd").unlink()
    assert LinuxProcesses(fake_proc.root).uses_gpu(pid) is GpuUse.UNREADABLE


@pytest.mark.failure_case(79)
@pytest.mark.parametrize(("seconds", "expected"), [(60.0, False), (0.0, None)])
def test_open_files_beyond_the_time_limit_make_gpu_use_unknown(seconds: float, expected: bool | None) -> None:
    """A container may have a million files open; reading all of them would stop enforcement on its node for seconds."""
    with Path("/dev/null").open(), Path("/dev/null").open():
        assert ProcFiles(Path("/proc")).has_open(os.getpid(), DEVICE_MAJORS, seconds) is expected


PRIVATE_FILES = """import ctypes, os, threading, time
def run():
    if {has_own}:
        assert ctypes.CDLL(None).unshare(0x400) == 0
    os.open("/dev/ptmx", os.O_RDWR)
    print("ready", flush=True)
    time.sleep(600)
for _ in range(8):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
threading.Thread(target=run).start()
"""
"""A thread opens a device; the others have it only if they share their table of open files (CLONE_FILES)."""


@pytest.mark.failure_case(78)
@pytest.mark.parametrize("has_kcmp", [True, False])
@pytest.mark.parametrize("has_own", [True, False])
def test_device_open_in_a_single_thread_is_found(
    process_pool: ProcessPool, monkeypatch: pytest.MonkeyPatch, has_own: bool, has_kcmp: bool
) -> None:
    pid = process_pool.pid(PRIVATE_FILES.format(has_own=has_own))
    assert has_own != any("ptmx" in str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir())
    if not has_kcmp:
        monkeypatch.setattr("gpushare_node.adapters.procs.files._KCMP_SINCE", (99, 0))
    monkeypatch.setattr(linux, "DEVICE_MAJORS", {5})
    assert LinuxProcesses().uses_gpu(pid) is GpuUse.YES
    monkeypatch.setattr(linux, "DEVICE_MAJORS", DEVICE_MAJORS)
    assert LinuxProcesses().uses_gpu(pid) is GpuUse.NO


@pytest.mark.failure_case(78)
@needs_root
def test_unreadable_files_of_another_user_do_not_clear_a_process() -> None:
    """With KILL and SYS_PTRACE the memory map of another user's process can be read, its open files cannot."""
    target = subprocess.Popen(["sleep", "60"], user=65534, group=65534)
    code = (
        "from gpushare_node.adapters.procs.linux import LinuxProcesses\n"
        f"assert open('/proc/{target.pid}/maps').read(1)\n"
        f"print(LinuxProcesses().uses_gpu({target.pid}).value)"
    )
    rights = "-all,+kill,+sys_ptrace"
    command = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}", sys.executable, "-c", code]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    finally:
        target.kill()
        target.wait()
    assert answer.strip() == "unreadable"


@pytest.mark.failure_case(79)
@needs_root
def test_file_on_a_hung_mount_does_not_block_the_check(fake_proc: FakeProc, tmp_path: Path, process_pool: ProcessPool) -> None:
    """A real FUSE mount: its server lets the folder be opened and never answers again."""
    processes, threads = LinuxProcesses(fake_proc.root), threading.active_count()
    other = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    with unanswering(tmp_path / "mount") as holder:
        pid = fake_proc.show(holder, systemd_path())
        answers = {processes.uses_gpu(pid) for _ in range(5)}
        assert answers == {GpuUse.NO}, "it is no device, and nobody has to ask the server for that"
        assert processes.uses_gpu(other) is GpuUse.NO
        assert threading.active_count() - threads <= 1


@pytest.mark.failure_case(74)
@pytest.mark.parametrize(
    ("name", "shown"),
    [
        (b"python3", "python3"),
        (b"two words", "two words"),
        ("dämon".encode(), "dämon"),
        (b"a\nkilled: b", "a?killed: b"),
        (b"\x1b[31mred\x1b[0m", "?[31mred?[0m"),
        (b'"},{"x":"', '"},{"x":"'),
        ("\u202egnp".encode(), "?gnp"),
        (b"\xff\xfe\r\x00", "\ufffd\ufffd?"),
        ("a\u2028b\u0085c".encode(), "a?b?c"),
    ],
)
def test_control_characters_in_a_process_name_are_escaped(process_pool: ProcessPool, name: bytes, shown: str) -> None:
    pid = process_pool.pid(NAMED, name.hex())
    assert Path(f"/proc/{pid}/comm").read_bytes() == name.split(b"\0")[0] + b"\n"
    details = LinuxProcesses().details(pid)
    assert details is not None
    assert details.comm == shown
    assert (details.uid, details.namespace_pids) == (os.getuid(), (pid,))


@pytest.mark.failure_case(74)
def test_a_name_is_cut_and_cannot_forge_a_line_of_the_status(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    pid = process_pool.pid(NAMED, b"\nUid:\t0\t0\t0\t0".hex())
    fake_proc.show(pid, systemd_path())
    fake_proc.fake(pid, "comm", "x" * 500 + "\n")
    details = LinuxProcesses(fake_proc.root).details(pid)
    assert details is not None
    assert (details.comm, details.uid) == ("x" * 64, os.getuid())


@needs_root
def test_a_process_in_namespaces_is_reported_with_its_pid_in_each(process_pool: ProcessPool) -> None:
    outer = process_pool.run("unshare", "-pf", "--kill-child", "sleep", "30").pid
    wait_for(lambda: children(outer))
    (inner,) = children(outer)
    details = LinuxProcesses().details(inner)
    assert details is not None
    assert details.namespace_pids == (inner, 1)


@pytest.mark.failure_case(41)
def test_unreaped_zombie_has_exited(process_pool: ProcessPool) -> None:
    processes = LinuxProcesses()
    child = int(said(process_pool.start(NOT_REAPING)))
    seen = processes.look([child])[child]
    assert not processes.has_ended(seen)
    os.kill(child, 9)
    await_exit(child)
    assert Path(f"/proc/{child}/stat").read_text().split()[2] == "Z"
    assert processes.has_ended(seen)
    assert (processes.look([child]), processes.is_living(child), processes.is_living(os.getpid())) == ({}, False, True)


def test_process_whose_main_thread_exited_is_alive(process_pool: ProcessPool) -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: (print('ready', flush=True), time.sleep(3600))).start()\n"
        "ctypes.CDLL(None).syscall(ctypes.c_long(60), 0)"
    )
    pid = process_pool.pid(code)
    processes = LinuxProcesses()
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")
    seen = processes.look([pid])[pid]
    assert not processes.has_ended(seen)
    os.kill(pid, 9)
    await_exit(pid)
    assert processes.has_ended(seen)


def test_reaped_process_or_reused_pid_has_exited(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    processes = LinuxProcesses(fake_proc.root)
    process = process_pool.start(SLEEPING)
    fake_proc.show(process.pid, systemd_path())
    seen = processes.look([process.pid])[process.pid]
    fake_proc.fake(process.pid, "stat", stat_line(process.pid, start_time=seen.start_time + 1))
    assert processes.has_ended(seen)
    process.kill()
    process.wait()
    assert LinuxProcesses().has_ended(seen)


def test_process_that_keeps_changing_pids_does_not_break_the_scan(process_pool: ProcessPool) -> None:
    process_pool.start(RESPAWNING)
    processes = LinuxProcesses()
    for _ in range(50):
        processes.look(processes.pids())
