"""The MPS control program: a real executable that keeps to the dialogue, hangs, refuses or talks nonsense."""

import os
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.mps import ControlProgram, HostMpsControl, MpsError, is_server
from gpushare_node.adapters.procs.processes import ProcessDetails, ProcessIdentity
from gpushare_node.guard.inputs import Process
from gpushare_node.guard.process_list import Mps
from tests.support.process_fixtures import (
    CONTAINER_B,
    NAMED,
    POD_B,
    SLEEPING,
    FakeProc,
    ProcessPool,
    children,
    open_files,
    systemd_path,
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
get_client_list) cat "clients-$first" 2>/dev/null || echo "Server $first not found" ;;
get_default_active_thread_percentage) cat percentage ;;
get_default_device_pinned_mem_limit) cat "limit-$first" ;;
terminate_client)
    [ -e only-said ] && { cat only-said; exit 0; }
    grep -vx "$second" "clients-$first" > left; mv left "clients-$first"
    [ -e consent ] && cat consent ;;
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

    def serve(self, server: int, *clients: int) -> None:
        with (self.pipe / "servers").open("a") as file:
            file.write(f"{server}\n")
        self.write(f"clients-{server}", "".join(f"{client}\n" for client in clients))
        self.write(f"status-{server}", "ACTIVE\n")

    def log(self) -> list[str]:
        return [line.strip() for line in (self.pipe / "log").read_text().splitlines()]

    def terminations(self) -> list[str]:
        return [line for line in self.log() if line.startswith("terminate_client")]


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
    """Tenants are the processes in pods; whoever is outside is the host's own."""
    return HostMpsControl(
        LinuxProcesses(fake_proc.root),
        is_system=lambda seen: not seen.candidates,
        root=tmp_path / "mps",
        program=program,
        timeout_seconds=PATIENCE,
    )


def serve(
    daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool, *clients: int, path: str = "/system.slice/mps.service"
) -> int:
    """A root's process of the server's name, outside pods."""
    server = fake_proc.show(process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex()), path)
    fake_proc.fake(server, "status", f"Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t{server}\n")
    daemon.serve(server, *clients)
    return server


def tenant(fake_proc: FakeProc, process_pool: ProcessPool) -> Process:
    pid = fake_proc.show(process_pool.pid(SLEEPING), systemd_path())
    seen = LinuxProcesses(fake_proc.root).look([pid])[pid]
    return Process(pid=pid, start_time=seen.start_time, cgroup=seen.cgroup, container=seen.candidates[0])


def test_mps_control_protocol_with_a_conforming_daemon(control: ControlProgram, daemon: Daemon) -> None:
    daemon.serve(100, 7, 8)
    daemon.serve(200)
    assert control.answers()
    assert control.servers() == (100, 200)
    assert (control.clients(100), control.clients(200)) == ((7, 8), ())
    assert control.terminate(100, 7)
    assert control.clients(100) == (8,)


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("consent", ["success", "Client 7 terminated", "0", ""])
def test_client_that_is_no_longer_listed_is_terminated_whatever_the_reply(
    control: ControlProgram, daemon: Daemon, consent: str
) -> None:
    daemon.serve(100, 7)
    daemon.write("consent", consent)
    assert control.terminate(100, 7)


@pytest.mark.failure_case(62)
@pytest.mark.parametrize(
    "refusal",
    ["Failed to terminate client", "CUDA_ERROR_MPS_RPC_FAILURE", "client 7 not found", "terminated: no, error 3", "", "0"],
)
def test_exit_code_0_alone_does_not_confirm_termination(control: ControlProgram, daemon: Daemon, refusal: str) -> None:
    daemon.serve(100, 7)
    daemon.write("only-said", refusal)
    assert not control.terminate(100, 7)


@pytest.mark.failure_case(62)
def test_client_with_confirmed_termination_may_still_be_listed(control: ControlProgram, daemon: Daemon) -> None:
    daemon.serve(100, 7)
    daemon.write("only-said", "Successfully terminated client 7")
    assert control.terminate(100, 7)


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
    for ask in (control.servers, lambda: control.clients(1), lambda: control.terminate(1, 2), lambda: control.limit_mib(0)):
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
    target = tenant(fake_proc, process_pool)
    server = serve(daemon, fake_proc, process_pool, target.pid)
    shared = Daemon(tmp_path / "mps/nvidia.com/gpu.shared/pipe")
    shared.write("limit-0", "4G")
    daemon.write("exit", "1")
    assert (mps.state(), mps.limit_mib(0)) == (Mps.UNREACHABLE, None)
    mps._resources = frozenset({"nvidia.com/gpu.shared"})
    assert (mps.state(), mps.limit_mib(0), mps.faults()) == (Mps.REACHABLE, 4096, frozenset())
    (daemon.pipe / "exit").unlink()
    daemon.write(f"status-{server}", "FAULT\n")
    assert mps.faults() == frozenset()
    assert mps.terminate([target]) == {target}, "whose clients they are does not matter"
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


@pytest.mark.failure_case(62)
def test_client_is_terminated_at_its_own_server(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    target, neighbour = tenant(fake_proc, process_pool), tenant(fake_proc, process_pool)
    serve(daemon, fake_proc, process_pool)
    server = serve(daemon, fake_proc, process_pool, neighbour.pid, target.pid)
    assert mps.terminate([target]) == {target}
    assert daemon.terminations() == [f"terminate_client {server} {target.pid}"]


@pytest.mark.failure_case(62)
def test_a_client_of_the_second_daemon_is_found_though_the_first_is_broken(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool, tmp_path: Path
) -> None:
    daemon.write("exit", "1")
    second = Daemon(tmp_path / "mps/nvidia.com/gpu.shared/pipe")
    target = tenant(fake_proc, process_pool)
    server = serve(second, fake_proc, process_pool, target.pid)
    assert mps.terminate([target]) == {target}
    assert second.terminations() == [f"terminate_client {server} {target.pid}"]


@pytest.mark.failure_case(62)
def test_refused_termination_and_unknown_client_are_not_confirmed(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    target, stranger = tenant(fake_proc, process_pool), tenant(fake_proc, process_pool)
    serve(daemon, fake_proc, process_pool, target.pid)
    daemon.write("only-said", "failure: client is busy")
    assert mps.terminate([target, stranger]) == frozenset()
    assert len(daemon.terminations()) == 1


@pytest.mark.failure_case(39)
def test_client_whose_pid_was_reused_is_not_terminated(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    target = tenant(fake_proc, process_pool)
    serve(daemon, fake_proc, process_pool, target.pid)
    former = Process(pid=target.pid, start_time=target.start_time - 1, cgroup=target.cgroup, container=target.container)
    assert mps.terminate([former]) == frozenset()
    assert daemon.terminations() == []


def put_in_namespace(fake_proc: FakeProc, pid: int, inner: int, namespace: str) -> None:
    """Show the process as one of a pid namespace below ours."""
    fake_proc.fake(pid, "status", f"Name:\tx\nUid:\t0\t0\t0\t0\nNSpid:\t{pid}\t{inner}\n")
    (fake_proc.root / f"{pid}/ns").unlink(missing_ok=True)
    (fake_proc.root / f"{pid}/ns").mkdir()
    (fake_proc.root / f"{pid}/ns/pid").symlink_to(f"pid:[{namespace}]")


@pytest.mark.failure_case(62)
def test_pids_are_translated_to_the_daemons_pid_namespace(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    server = fake_proc.show(process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex()), "/system.slice/mps.service")
    target = tenant(fake_proc, process_pool)
    put_in_namespace(fake_proc, server, 12, "5")
    put_in_namespace(fake_proc, target.pid, 34, "5")
    daemon.serve(12, 34, target.pid)
    assert mps.terminate([target]) == {target}
    assert daemon.terminations() == ["terminate_client 12 34"]


@pytest.mark.failure_case(62)
def test_no_client_is_terminated_if_two_servers_have_the_same_pid(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    target = tenant(fake_proc, process_pool)
    put_in_namespace(fake_proc, target.pid, 34, "5")
    for _ in range(2):
        server = fake_proc.show(process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex()), "/system.slice/mps.service")
        put_in_namespace(fake_proc, server, 12, "5")
    daemon.serve(12, 34)
    assert mps.terminate([target]) == frozenset()
    assert daemon.terminations() == []


@pytest.mark.failure_case(62)
def test_client_in_a_sibling_pid_namespace_is_not_terminated(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    server = fake_proc.show(process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex()), "/system.slice/mps.service")
    target = tenant(fake_proc, process_pool)
    put_in_namespace(fake_proc, server, 12, "5")
    put_in_namespace(fake_proc, target.pid, 34, "6")
    daemon.serve(12, 34, target.pid)
    assert mps.terminate([target]) == frozenset()
    assert daemon.terminations() == []


@pytest.mark.failure_case(62)
def test_unrecognised_server_is_not_asked_to_terminate_clients(
    mps: HostMpsControl, daemon: Daemon, fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    """A tenant poses as the server, so that our pid would be taken for the daemon's."""
    target = tenant(fake_proc, process_pool)
    serve(daemon, fake_proc, process_pool, target.pid, path=systemd_path(POD_B, CONTAINER_B))
    assert mps.terminate([target]) == frozenset()
    assert daemon.terminations() == []


@pytest.mark.failure_case(63)
@pytest.mark.parametrize(
    ("comm", "uid", "is_tenant", "expected"),
    [
        ("nvidia-cuda-mps", 0, False, True),
        ("nvidia-cuda-mps-server", 0, False, True),
        ("nvidia-cuda-mps", 0, True, False),
        ("nvidia-cuda-mps", 1000, False, False),
        ("nvidia-cuda-mps", None, False, False),
        ("python3", 0, False, False),
        ("nvidia-cuda-mp", 0, False, False),
    ],
)
def test_mps_server_is_a_root_process_of_that_name_outside_tenant_pods(
    comm: str, uid: int | None, is_tenant: bool, expected: bool
) -> None:
    assert is_server(ProcessDetails(comm=comm, uid=uid, namespace_pids=(500,)), is_tenant=is_tenant) is expected
    assert not is_server(None, is_tenant=is_tenant)


@pytest.mark.failure_case(63)
def test_real_process_with_the_server_name_counts_only_outside_tenant_pods(
    fake_proc: FakeProc, process_pool: ProcessPool
) -> None:
    processes = LinuxProcesses(fake_proc.root)

    def is_one(seen: ProcessIdentity) -> bool:
        return is_server(processes.details(seen.pid), is_tenant=bool(seen.candidates))

    pid = process_pool.pid(NAMED, b"nvidia-cuda-mps-server".hex())
    fake_proc.show(pid, "/system.slice/mps.service")
    fake_proc.fake(pid, "status", "Uid:\t0\t0\t0\t0\nNSpid:\t5\n")
    assert is_one(processes.look([pid])[pid])
    fake_proc.show(pid, systemd_path())
    assert not is_one(LinuxProcesses(fake_proc.root).look([pid])[pid])
