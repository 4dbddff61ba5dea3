"""The MPS control program: a real executable that keeps to the dialogue, hangs, refuses or talks nonsense."""

import os
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.mps import ControlProgram, HostMpsControl, MpsError
from gpushare_node.guard.process_list import Mps
from tests.support.process_fixtures import (
    NAMED,
    FakeProc,
    ProcessPool,
    children,
    open_files,
)
from tests.support.waiting import PATIENCE

PROGRAM = """#!/bin/sh
cd "$CUDA_MPS_PIPE_DIRECTORY" || exit 9
read -r command first second
echo "$command $first $second" >> log
[ -e hang ] && { sleep 600 & wait; }
[ -e deaf ] && { trap '' TERM HUP; exec 2>&1; sleep 600; }
[ -e endless ] && exec yes
[ -e exit ] && exit "$(cat exit)"
case $command in
get_server_list) cat servers ;;
get_server_status) cat "status-$first" ;;
get_default_active_thread_percentage) cat percentage ;;
get_default_device_pinned_mem_limit) cat "limit-$first" ;;
*) echo "Unknown command" ;;
esac
exit 0
"""


class Daemon:
    """What the program answers for one pipe directory."""

    def __init__(self, pipe: Path) -> None:
        pipe.mkdir(parents=True)
        self.pipe = pipe
        self.write("percentage", "25.0\n")
        self.write("servers", "")
        self.write("log", "")

    def write(self, name: str, text: str) -> None:
        (self.pipe / name).write_text(text)

    def serve(self, server: int) -> None:
        with (self.pipe / "servers").open("a") as file:
            file.write(f"{server}\n")
        self.write(f"status-{server}", "ACTIVE\n")

    def log(self) -> list[str]:
        return [line.strip() for line in (self.pipe / "log").read_text().splitlines()]


@pytest.fixture
def program(tmp_path: Path) -> str:
    file = tmp_path / "control"
    file.write_text(PROGRAM)
    file.chmod(0o755)
    return str(file)


@pytest.fixture
def daemon(tmp_path: Path) -> Daemon:
    return Daemon(tmp_path / "mps/nvidia.com/gpu/pipe")


@pytest.fixture
def control(daemon: Daemon, program: str) -> ControlProgram:
    return ControlProgram(daemon.pipe, program=program, timeout_seconds=PATIENCE)


@pytest.fixture
def mps(tmp_path: Path, program: str, fake_proc: FakeProc) -> HostMpsControl:
    return HostMpsControl(
        LinuxProcesses(fake_proc.root),
        root=tmp_path / "mps",
        program=program,
        timeout_seconds=PATIENCE,
    )


def serve(daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool) -> int:
    """A root's process of the server's name, outside pods."""
    server = fake_proc.show(process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex()), "/system.slice/mps.service")
    fake_proc.fake(server, "status", f"Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t{server}\n")
    daemon.serve(server)
    return server


def test_mps_control_protocol_with_a_conforming_daemon(control: ControlProgram, daemon: Daemon) -> None:
    daemon.serve(100)
    daemon.serve(200)
    assert control.answers()
    assert control.servers() == (100, 200)


@pytest.mark.failure_case(62)
def test_endless_mps_reply_is_rejected(control: ControlProgram, daemon: Daemon) -> None:
    daemon.write("endless", "")
    with pytest.raises(MpsError, match="the answer is too long"):
        control.ask("get_server_list")


@pytest.mark.failure_case(62)
@pytest.mark.parametrize(
    ("fault", "seconds", "words"),
    [
        ("hang", 0.3, "no answer within 0.3 s"),
        ("deaf", 0.3, "no answer within 0.3 s"),
        ("endless", PATIENCE, "the answer is too long"),
        ("exit", PATIENCE, "exit code 3"),
    ],
)
def test_a_daemon_that_hangs_or_talks_without_end_is_an_error_in_bounded_time(
    daemon: Daemon, program: str, fault: str, seconds: float, words: str
) -> None:
    """Left alone, one that hangs would do so for ten minutes."""
    control = ControlProgram(daemon.pipe, program=program, timeout_seconds=seconds)
    daemon.write(fault, "3")
    for ask in (control.servers, lambda: control.has_fault(1), lambda: control.limit_mib(0)):
        with pytest.raises(MpsError, match=words):
            ask()
    assert not control.answers()


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("answer", ["no servers\n", "12 x\n", "-5\n", "٣\n", "\x00\xff\n", "12;13", "9" * 5000, "7 " * 5000])
def test_invalid_list_reply_is_an_error(control: ControlProgram, daemon: Daemon, answer: str) -> None:
    daemon.write("servers", answer)
    with pytest.raises(MpsError):
        control.servers()


@pytest.mark.failure_case(62)
def test_missing_or_unexecutable_control_program_is_an_error(daemon: Daemon, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    for name in ("missing", "text"):
        control = ControlProgram(daemon.pipe, program=str(tmp_path / name))
        with pytest.raises(MpsError, match="cannot be started"):
            control.servers()
        assert not control.answers()


def test_mps_control_leaks_no_descriptor_or_process(daemon: Daemon, program: str) -> None:
    control = ControlProgram(daemon.pipe, program=program, timeout_seconds=0.5)
    before, others = open_files(), set(children(os.getpid()))
    for fault in (None, "hang", "endless", "exit"):
        if fault:
            daemon.write(fault, "3")
        control.answers()
    assert open_files() == before
    assert set(children(os.getpid())) <= others


@pytest.mark.parametrize(
    ("answer", "mib"),
    [
        ("4096M", 4096),
        ("4G", 4096),
        ("4GB\n", 4096),
        ("0.5G", 512),
        ("10240 MiB", 10240),
        ("device 0: 2G", 2048),
        ("", None),
        ("none", None),
        ("1G 2G", None),
        ("4096", None),
        ("GPU-4a1c: 1G", 1024),
    ],
)
def test_the_limit_of_a_device_is_read_in_mib(control: ControlProgram, daemon: Daemon, answer: str, mib: int | None) -> None:
    daemon.write("limit-GPU-1", answer)
    assert control.limit_mib("GPU-1") == mib


def test_highest_limit_of_several_daemons_counts(mps: HostMpsControl, daemon: Daemon, tmp_path: Path) -> None:
    other = Daemon(tmp_path / "mps/nvidia.com/gpu.shared/pipe")
    daemon.write("limit-0", "4G")
    other.write("limit-0", "8G")
    assert mps.limit_mib(0) == 8192
    other.write("limit-0", "")
    assert mps.limit_mib(0) is None
    other.write("limit-0", "8G")
    other.write("exit", "1")
    assert mps.limit_mib(0) is None


def test_mps_is_off_without_pipe_directories(mps: HostMpsControl) -> None:
    assert (mps.state(), mps.limit_mib(0)) == (Mps.OFF, None)


def test_mps_is_reachable_when_every_daemon_answers(mps: HostMpsControl, daemon: Daemon, tmp_path: Path) -> None:
    assert mps.state() is Mps.REACHABLE
    Daemon(tmp_path / "mps/flat/pipe").write("percentage", "cannot connect\n")
    assert mps.state() is Mps.UNREACHABLE


def test_only_daemons_of_the_required_resources_must_answer(
    mps: HostMpsControl, daemon: Daemon, tmp_path: Path, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    """The device plugin leaves the folder of a resource's former name, here of the time before `renameByDefault`."""
    server = serve(daemon, fake_proc, process_pool)
    shared = Daemon(tmp_path / "mps/nvidia.com/gpu.shared/pipe")
    shared.write("limit-0", "4G")
    daemon.write("exit", "1")
    assert (mps.state(), mps.limit_mib(0)) == (Mps.UNREACHABLE, None)
    mps._resources = frozenset({"nvidia.com/gpu.shared"})
    assert (mps.state(), mps.limit_mib(0), mps.faults()) == (Mps.REACHABLE, 4096, frozenset())
    (daemon.pipe / "exit").unlink()
    daemon.write(f"status-{server}", "FAULT\n")
    assert mps.faults() == frozenset()
    mps._resources = frozenset({"nvidia.com/other"})
    assert mps.state() is Mps.OFF


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("ACTIVE", ""),
        ("INITIALIZING", ""),
        ("Unknown command", ""),
        ("Server default", ""),
        ("FAULT", "is in state FAULT"),
    ],
)
def test_mps_server_in_state_fault_is_reported(  # noqa: PLR0917 - fixtures
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool, status: str, words: str
) -> None:
    server = serve(daemon, fake_proc, process_pool)
    daemon.write(f"status-{server}", f"{status}\n")
    assert mps.state() is Mps.REACHABLE
    assert mps.faults() == ({f"MPS server {server} of gpu {words}"} if words else frozenset())
    daemon.write("exit", "1")
    assert mps.faults() == frozenset()


def test_exited_mps_server_that_is_still_listed_is_reported(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    server = serve(daemon, fake_proc, process_pool)
    assert mps.faults() == frozenset()
    fake_proc.hide(server)
    assert mps.faults() == {f"MPS server {server} of gpu has exited, but its daemon still lists it"}


def test_a_server_of_another_pid_namespace_is_found_by_its_pid_there(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    seen = serve(daemon, fake_proc, process_pool)
    fake_proc.fake(seen, "status", f"Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t{seen}\t30\n")
    daemon.write("servers", "30\n")
    daemon.write("status-30", "ACTIVE\n")
    assert mps.faults() == frozenset()
