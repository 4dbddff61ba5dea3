"""Real cgroups in whatever hierarchy this machine lets us write to, and real processes in them. As root."""

import contextlib
import os
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.linux import LinuxProcesses, kill_group
from gpushare_node.adapters.procs.processes import GpuUse, Signal, SignalResult
from gpushare_node.guard.inputs import ContainerId
from tests.support.process_fixtures import (
    CONTAINER_A,
    CONTAINER_B,
    IGNORING_SIGTERM,
    POD_A,
    POD_B,
    RESPAWNING,
    SLEEPING,
    ProcessPool,
    await_exit,
    open_process_pool,
    systemd_path,
)
from tests.support.waiting import wait_for


def hierarchies() -> list[Path]:
    """Where cgroups are mounted: the unified hierarchy and systemd's named one need no controller."""
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    fields = [line.split() for line in mounts]
    unified = [Path(line[4]) for line in fields if " - cgroup2 " in " ".join(line)]
    named = [Path(line[4]) for line in fields if re.search(r" - cgroup .*name=", " ".join(line))]
    return [mount for mount in (*unified, *named) if os.access(mount, os.W_OK)]


@pytest.mark.parametrize("blank", ["\u2003", "\u2028", "\x85"])
def test_blanks_that_the_kernel_does_not_escape_forge_no_mount(tmp_path: Path, blank: str) -> None:
    """A tenant chooses the device of a volume; its folder is no root of cgroups, and its pipe holds nobody."""
    forged = tmp_path / f"kubepods/pod{POD_A}" / CONTAINER_A
    forged.mkdir(parents=True)
    os.mkfifo(forged / "cgroup.kill")
    (tmp_path / "1").mkdir()
    (tmp_path / "self").mkdir()
    line = f"server:/x{blank}{tmp_path}{blank}cgroup2 /mnt nfs4 rw 0 0\n"
    for process in ("1", "self"):
        (tmp_path / process / "mounts").write_text(line, encoding="utf-8")
    assert not kill_group(tmp_path, ContainerId(POD_A, CONTAINER_A))
    (tmp_path / "self/mounts").write_text(f"cgroup2 {tmp_path} cgroup2 rw 0 0\n", encoding="utf-8")
    assert not kill_group(tmp_path, ContainerId(POD_A, CONTAINER_A)), "opening a pipe without a reader fails"


class Groups:
    """Cgroups of our own, below a root that only this test run uses."""

    def __init__(self, mount: Path) -> None:
        self.mount = mount
        self._made: list[Path] = []

    def put(self, pid: int, path: str) -> None:
        group = self.mount / path.lstrip("/")
        missing = [folder for folder in (group, *group.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir()
            self._made.append(folder)
        (group / "cgroup.procs").write_text(f"{pid}\n")

    def remove(self) -> None:
        for folder in reversed(self._made):
            for pid in (folder / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), 9)
            wait_for(lambda folder=folder: not (folder / "cgroup.procs").read_text().split())
            folder.rmdir()


@pytest.fixture(params=(*hierarchies(),) or (None,), ids=str)
def groups(request: pytest.FixtureRequest) -> Iterator[Groups]:
    if request.param is None:
        pytest.skip("no cgroup hierarchy can be written to here")
    made = Groups(request.param)
    try:
        yield made
    finally:
        made.remove()


@pytest.fixture
def process_pool(groups: Groups) -> Iterator[ProcessPool]:
    """Ends before the cgroups are removed."""
    with open_process_pool() as everyone:
        yield everyone


def kubelet(pod: str = POD_A, container: str = CONTAINER_A) -> str:
    """A path as kubelet makes it, below a root that is this run's alone."""
    return f"/test{os.getpid()}{systemd_path(pod, container)}"


def test_process_is_found_in_its_kernel_cgroup(groups: Groups, process_pool: ProcessPool) -> None:
    pid = process_pool.pid(SLEEPING)
    groups.put(pid, kubelet())
    seen = LinuxProcesses().look([pid])[pid]
    assert (seen.candidates, seen.cgroup) == ((ContainerId(pod_uid=POD_A, container=CONTAINER_A),), kubelet())


def test_nested_cgroup_named_like_another_container_is_not_attributed_to_it(groups: Groups, process_pool: ProcessPool) -> None:
    pid = process_pool.pid(SLEEPING)
    groups.put(pid, kubelet())
    processes = LinuxProcesses()
    before = processes.look([pid])[pid]
    groups.put(pid, f"{kubelet()}{kubelet(POD_B, CONTAINER_B)}")
    after = LinuxProcesses().look([pid])[pid]
    assert after.candidates == before.candidates
    assert after.cgroup == before.cgroup
    assert processes.send(before, Signal.KILL) is SignalResult.SENT
    await_exit(pid)


def test_process_moved_to_another_container_is_not_killed(groups: Groups, process_pool: ProcessPool) -> None:
    pid = process_pool.pid(SLEEPING)
    groups.put(pid, kubelet())
    processes = LinuxProcesses()
    seen = processes.look([pid])[pid]
    groups.put(pid, kubelet(POD_B, CONTAINER_B))
    assert processes.send(seen, Signal.KILL) is SignalResult.REUSED
    assert not processes.has_ended(seen)


@pytest.mark.failure_case(35)
def test_constantly_forking_container_is_killed_completely(groups: Groups, process_pool: ProcessPool) -> None:
    leader, neighbour = process_pool.pid(IGNORING_SIGTERM), process_pool.pid(SLEEPING)
    groups.put(leader, kubelet())
    groups.put(neighbour, kubelet(POD_B, CONTAINER_B))
    for _ in range(5):
        groups.put(process_pool.start(RESPAWNING).pid, f"{kubelet()}/job")
    processes = LinuxProcesses()
    seen = processes.look([leader])[leader]

    groups_of_tenant = [groups.mount / path.lstrip("/") / "cgroup.procs" for path in (kubelet(), f"{kubelet()}/job")]

    def is_over() -> bool:
        """One more pass; a fork may always slip through the last one, so passes go on until the kernel lists nobody."""
        for member in processes.members(seen):
            processes.send(member, Signal.KILL)
        return not any(group.read_text().split() for group in groups_of_tenant)

    wait_for(is_over)
    assert not processes.has_ended(processes.look([neighbour])[neighbour])


def test_member_list_is_stable_while_processes_start_and_exit(groups: Groups, process_pool: ProcessPool) -> None:
    steady = {process_pool.pid(SLEEPING) for _ in range(3)}
    for pid in steady:
        groups.put(pid, kubelet())
    groups.put(process_pool.start(RESPAWNING).pid, kubelet(POD_B, CONTAINER_B))
    processes, threads = LinuxProcesses(), threading.active_count()
    seen = processes.look(steady)[min(steady)]
    for _ in range(30):
        assert {member.pid for member in processes.members(seen)} == steady
    assert threading.active_count() == threads


def test_whole_container_is_killed_at_once_with_cgroup_v2(groups: Groups, process_pool: ProcessPool) -> None:
    """With cgroup v2, the host's cgroups seen through its first process; with v1 it says that it cannot, and nobody ends."""
    leader, below, neighbour = (process_pool.pid(IGNORING_SIGTERM) for _ in range(3))
    groups.put(leader, kubelet())
    groups.put(below, f"{kubelet()}/job")
    groups.put(neighbour, kubelet(POD_B, CONTAINER_B))
    processes = LinuxProcesses()
    seen = processes.look([leader, neighbour])
    is_v2 = (groups.mount / kubelet().lstrip("/") / "cgroup.kill").exists()
    assert processes.kill_group(seen[leader]) is is_v2
    if is_v2:
        await_exit(leader)
        await_exit(below)
    assert not processes.has_ended(seen[neighbour])


def test_process_whose_main_thread_exited_stays_in_its_container(groups: Groups, process_pool: ProcessPool) -> None:
    """cgroup v1 moves the ended thread to the root, and its memory map and files are gone; the others have all of them."""
    code = (
        "import ctypes, threading, time\n"
        "zero = open('/dev/zero')\n"
        "threading.Thread(target=lambda: (print('ready', flush=True), time.sleep(3600))).start()\n"
        "time.sleep(0.5)\n"
        "ctypes.CDLL(None).syscall(ctypes.c_long(60), 0)"
    )
    pid = process_pool.pid(code)
    groups.put(pid, kubelet())
    processes = LinuxProcesses()
    before = processes.look([pid])[pid]
    wait_for(lambda: Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z")
    after = LinuxProcesses().look([pid])[pid]
    assert (after.cgroup, after.candidates) == (before.cgroup, before.candidates)
    assert processes.uses_gpu(pid) is GpuUse.NO, "its files and its memory map can be read"
    assert processes.send(before, Signal.KILL) is SignalResult.SENT
    wait_for(lambda: processes.has_ended(before))
