"""The real processes of this host, read from /proc at every call, and how they are ended. Decides nothing.

It never signals a process outside pods or in our own container, whatever the caller requests.
"""

import errno
import os
import signal as numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from gpushare_node.adapters.procs.cgroup import CgroupLocation, containers, locate
from gpushare_node.adapters.procs.files import ProcFiles, Stat
from gpushare_node.adapters.procs.processes import GpuUse, ProcessDetails, Processes, ProcessIdentity, Signal, SignalResult
from gpushare_node.core.clock import SystemClock
from gpushare_node.core.worker import Worker
from gpushare_node.guard.inputs import ContainerId
from gpushare_node.guard.process_list import PID_MAX
from gpushare_node.vendors import DEVICE_FILES, DEVICE_MAJORS

_DEPTH = 12
"""Container runtimes nest cgroups less deeply, also on nodes that are containers themselves."""


def kill_group(proc: Path, container: ContainerId) -> bool:
    """Kill every process in the cgroup of this container or pod, and below. Return whether the kernel accepted it.

    It takes one write to `cgroup.kill` (cgroup v2, Linux 5.14). The host's cgroups are reached through the root folder of its
    first process, as far as our rights allow, or where they are mounted for us. Our own container's mount shows no other
    container.
    """
    roots = (*_cgroup_mounts(proc / "1/mounts", proc / "1/root"), *_cgroup_mounts(proc / "self/mounts", Path("/")))
    return any(_kill_cgroup(folder) for root in roots for folder in _find_cgroups(root, "", container, _DEPTH))


def _cgroup_mounts(table: Path, root: Path) -> Iterator[str]:
    """Yield where cgroup v2 is mounted, by this table, seen from this root folder."""
    with suppress(OSError):
        # The kernel escapes blanks and line feeds in what users choose, and no other character at which Python splits a text.
        for fields in (line.split(b" ") for line in table.read_bytes().split(b"\n")):
            if fields[2:3] == [b"cgroup2"]:
                yield str(root / os.fsdecode(fields[1]).lstrip("/"))


def _find_cgroups(root: str, path: str, container: ContainerId, depth: int) -> Iterator[str]:
    """Yield the cgroup of exactly this container. What a tenant creates below a container's cgroup is not searched."""
    try:
        names = [entry.name for entry in os.scandir(root + path) if entry.is_dir(follow_symlinks=False)]
    except OSError:
        return
    for name in names:
        below = f"{path}/{name}"
        where = locate(f"0::{below}")
        if where.candidates == (container,) and where.cgroup == below:
            yield root + below
        elif depth and not (where.candidates and where.candidates[0].container):
            yield from _find_cgroups(root, below, container, depth - 1)


def _kill_cgroup(folder: str) -> bool:
    try:
        # No file of a tenant's, such as a pipe, holds this thread.
        file = os.open(f"{folder}/cgroup.kill", os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
        try:
            os.write(file, b"1")
        finally:
            os.close(file)
    except OSError:
        return False
    return True


_NUMBERS = {Signal.TERM: numbers.SIGTERM, Signal.KILL: numbers.SIGKILL}
_BLOCKED = (errno.ENOSYS, errno.EPERM)
_NO_PROCESS = (errno.EINVAL, errno.ENOENT)
"""The errors of `pidfd_open` for the id of a thread that is not a process."""

Objection = Callable[[], SignalResult | None]
"""Checks the process again: returns why it must not be signalled, or None."""


def deliver(pid: int, signal: Signal, objection: Objection) -> SignalResult:
    """Send it, unless there is an objection once the pidfd is open. Never sends one to ourselves or the first two processes.

    It opens a pidfd before it checks the process again, so that the pid cannot pass to another process in between. If the
    kernel or a seccomp profile does not allow pidfds, the check comes right before `kill`: if the process ends and its pid is
    reused within those microseconds, the signal hits the wrong process. The kernel assigns pids in a cycle, so that takes a
    full cycle.
    """
    if _is_protected(pid):
        return SignalResult.REFUSED
    try:
        held = os.pidfd_open(pid)
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        if error.errno in _BLOCKED:
            return _deliver_by_number(pid, signal, objection)
        return SignalResult.REUSED if error.errno in _NO_PROCESS else SignalResult.REFUSED
    try:
        return _deliver_held(held, pid, signal, objection)
    finally:
        os.close(held)


def _deliver_held(held: int, pid: int, signal: Signal, objection: Objection) -> SignalResult:
    found = objection()
    if found is not None:
        return found
    try:
        numbers.pidfd_send_signal(held, _NUMBERS[signal])
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        # A missing permission and a seccomp profile return the same error; `kill` distinguishes them.
        return _deliver_by_number(pid, signal, objection) if error.errno in _BLOCKED else _refusal(error)
    return SignalResult.SENT


def _deliver_by_number(pid: int, signal: Signal, objection: Objection) -> SignalResult:
    found = objection()
    if found is not None:
        return found
    try:
        os.kill(pid, _NUMBERS[signal])
    except ProcessLookupError:
        return SignalResult.GONE
    except OSError as error:
        return _refusal(error)
    return SignalResult.SENT


def _refusal(error: OSError) -> SignalResult:
    """Return the result for an error: a missing capability is EPERM; the security modules' hooks return EACCES."""
    return SignalResult.DENIED if error.errno == errno.EACCES else SignalResult.REFUSED


def _is_protected(pid: int) -> bool:
    """Whether it is init, kthreadd, ourselves, or in our own process group. 0 and -1 would mean groups."""
    if pid <= 2 or pid == os.getpid():
        return True
    try:
        return os.getpgid(pid) == os.getpgrp()
    except ProcessLookupError:
        return False


_HOST_NAMESPACE = f"pid:[{0xEFFFFFFC}]"
"""The kernel's fixed number of the first pid namespace: PROC_PID_INIT_INO."""

_SCAN_SECONDS = 0.1
"""How long reading a memory map, or the open files, may take: that is enough for six thousand files, or for twenty times ten
thousand mappings."""

_COMM_LENGTH = 64
"""The kernel keeps 15 bytes of a program's name."""


class LinuxProcesses(Processes):
    """The processes under one /proc. Not thread-safe."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._files = ProcFiles(root)
        self._scanner: Worker | None = None
        self._own = containers(self._files.cgroup("self") or "")

    def sees_host(self) -> bool:
        """Whether pids here are the host's: the driver reports only those. False on nodes that are containers, too."""
        return self._files.namespace("self") == _HOST_NAMESPACE

    def pid_max(self) -> int:
        """Return the largest possible pid."""
        return self._files.pid_max() or PID_MAX

    def pids(self) -> tuple[int, ...]:
        """Return the pids of all current processes."""
        return self._files.pids()

    def look(self, pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        """Return the identities of those pids that live and are readable, as they are now.

        Nothing is remembered: a process changes its cgroup without another pid or start time, as a container's first one does.
        """
        living = ((pid, stat) for pid in pids if (stat := self._files.stat(pid)) is not None and not stat.has_ended())
        found = ((pid, stat, self._files.cgroup(pid, stat)) for pid, stat in living)
        return {pid: _seen(pid, stat, locate(text, self._own)) for pid, stat, text in found if text is not None}

    def members(self, seen: ProcessIdentity) -> tuple[ProcessIdentity, ...]:
        """Return all processes whose identity has the same cgroup now, without those that have ended.

        It reads every process's cgroup, 7 µs each: the host's cgroup file system is not mounted in our container.
        """
        name = seen.cgroup.rpartition("/")[2]
        found = []
        for pid in self._files.pids():
            text = self._files.cgroup(pid)
            if text is None or name not in text:
                continue
            where, stat = locate(text, self._own), self._files.stat(pid)
            if stat is not None and not stat.has_ended() and where.candidates and where.cgroup == seen.cgroup:
                found.append(_seen(pid, stat, where))
        return tuple(found)

    def in_pods(self) -> tuple[ProcessIdentity, ...]:
        """Return every living process that is in a pod."""
        found = self.look(self._files.pids())
        return tuple(one for one in found.values() if one.candidates)

    def is_living(self, pid: int) -> bool:
        """Whether a process, readable or not, has this pid and is no zombie."""
        stat = self._files.stat(pid)
        return pid in self._files.pids() if stat is None else not stat.has_ended()

    def kill_group(self, seen: ProcessIdentity) -> bool:
        """Have the kernel kill everything in its container's cgroup; False if it cannot: cgroup v1, or no access to it."""
        found = locate(f"0::{seen.cgroup}", self._own).candidates
        return bool(found) and found[0] not in self._own and kill_group(self._root, found[0])

    def uses_gpu(self, pid: int) -> GpuUse:
        """Whether the process has a GPU's device mapped or open. Never hangs, whatever the process has open or mapped.

        A CUDA context always has both. The memory map has names, and root in a container may rename the devices in its /dev, so
        open files are identified by the driver's major number; those of other users' processes are unreadable without
        CAP_DAC_READ_SEARCH, and then the result is never NO. Nor is it while a process is ending, which may take seconds.
        """
        if self._files.is_ending(pid):
            return GpuUse.UNREADABLE
        is_open = self._files.has_open(pid, DEVICE_MAJORS, _SCAN_SECONDS)
        is_mapped = None if is_open else self._is_mapped(pid)
        if is_open or is_mapped:
            return GpuUse.YES
        return GpuUse.NO if is_open is False and is_mapped is False else GpuUse.UNREADABLE

    def _is_mapped(self, pid: int) -> bool | None:
        """Whether it maps a GPU's device; None if that is not read in time, because the process holds the map's lock.

        The thread that waits for the lock can be killed meanwhile.
        """
        if self._scanner is None:
            self._scanner = Worker("scan", SystemClock())
        future = self._scanner.start(lambda: self._files.maps(pid, DEVICE_FILES))
        return future.value if future is not None and future.wait(_SCAN_SECONDS) else None

    def details(self, pid: int) -> ProcessDetails | None:
        """Return the details of the process for messages; None if it has ended."""
        comm, status = self._files.comm(pid), self._files.status(pid)
        if comm is None or status is None:
            return None
        return ProcessDetails(comm=_printable(comm), uid=status.uid, namespace_pids=status.namespace_pids, state=status.state)

    def namespace(self, pid: int) -> str | None:
        """Return its pid namespace; None if that is not readable."""
        return self._files.namespace(pid)

    def send(self, seen: ProcessIdentity, signal: Signal) -> SignalResult:
        """Signal it through a pidfd, after checking that start time and cgroup are unchanged.

        REUSED also means that the process is in another container now, REFUSED that it must never be signalled: outside pods,
        in our own container or process group, a kernel thread.
        """
        return deliver(seen.pid, signal, lambda: self._objection(seen))

    def has_ended(self, seen: ProcessIdentity) -> bool:
        """Whether it has ended or is a zombie; a reused pid is another process."""
        stat = self._files.stat(seen.pid)
        return stat is None or stat.start_time != seen.start_time or stat.has_ended()

    def _objection(self, seen: ProcessIdentity) -> SignalResult | None:
        """Return why the process must not be signalled, now that the pidfd refers to it; None if it may be."""
        stat, text = self._files.stat(seen.pid), self._files.cgroup(seen.pid)
        if stat is None or text is None:
            return SignalResult.GONE
        if stat.start_time != seen.start_time:
            return SignalResult.REUSED
        if stat.has_ended():
            return SignalResult.GONE
        where = locate(text, self._own)
        if where.cgroup != seen.cgroup:
            return SignalResult.REUSED
        return SignalResult.REFUSED if stat.is_kernel or not where.candidates else None


def _seen(pid: int, stat: Stat, where: CgroupLocation) -> ProcessIdentity:
    return ProcessIdentity(
        pid=pid, start_time=stat.start_time, cgroup=where.cgroup, candidates=where.candidates, is_kernel=stat.is_kernel
    )


def _printable(comm: bytes) -> str:
    """Return the name without characters that break a line, control a terminal or change the direction of writing."""
    text = comm.decode("utf-8", "replace")
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:_COMM_LENGTH]
