"""The files of /proc, as values. Reads and never writes; for a process that has ended, or is not readable, returns None.

A process is its thread group. If its main thread has ended before the others, /proc/PID shows a zombie without files, memory
map or (cgroup v1) cgroup: then those of a living thread are read.
"""

import ctypes
import os
import re
import stat
import struct
import time
from collections.abc import Collection, Container
from pathlib import Path
from typing import NamedTuple

from gpushare_node.contract.struct import Struct

_STAT_BYTES = 1024
"""A stat line is shorter: 52 numbers and a name of at most 64 bytes; the fields used here begin within the first 500 bytes."""

_CHUNK_BYTES, _PAGE_BYTES = 1 << 16, 1 << 12
_STATES = {b"D": "waits for a device", b"T": "stopped", b"t": "traced", b"Z": "zombie", b"X": "zombie"}
_KERNEL_THREAD, _EXITING = 0x00200000, 0x00000004
"""PF_KTHREAD and PF_EXITING of the kernel's task flags."""


_ENDED = ("Z", "X")
"""The states of a thread that has ended."""


class Stat(NamedTuple):
    """The fields of /proc/PID/stat. `start_time` is in clock ticks since boot."""

    state: str
    start_time: int
    threads: int
    is_kernel: bool
    is_exiting: bool

    def has_ended(self) -> bool:
        """Whether only a zombie is left. A main thread that ended before the others looks like a zombie too."""
        return self.state in _ENDED and self.threads <= 1


class ProcessStatus(Struct):
    """The fields of /proc/PID/status. `namespace_pids` is ordered from the outermost namespace to the innermost.

    `state` is a word for people, empty for a process that runs or sleeps.
    """

    uid: int | None
    namespace_pids: tuple[int, ...]
    state: str = ""


_STATX = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)
_SYSCALL = ctypes.CDLL(None, use_errno=True).syscall
_AT_FDCWD, _DONT_SYNC, _TYPE, _NO_FILE = -100, 0x4000, 0x1, 2
"""AT_FDCWD, AT_STATX_DONT_SYNC, STATX_TYPE and ENOENT of Linux's uapi headers."""

_STATX_BYTES, _MODE_AT, _DEVICE_AT = 256, 28, 128
"""The size of `struct statx`, and where its `stx_mode` and `stx_rdev_major` begin."""


def _is_device(path: str, majors: Container[int]) -> bool | None:
    """Whether this open file is a device of the drivers; None if that is not readable. A file closed meanwhile is not one.

    The kernel answers from what it has: the server of a FUSE or NFS mount is not asked, and so cannot delay the answer.
    """
    if _STATX is None:
        return None
    answer = ctypes.create_string_buffer(_STATX_BYTES)
    if _STATX(_AT_FDCWD, path.encode(), _DONT_SYNC, _TYPE, answer):
        return False if ctypes.get_errno() == _NO_FILE else None
    (mode,), (found,) = struct.unpack_from("=H", answer, _MODE_AT), struct.unpack_from("=I", answer, _DEVICE_AT)
    return stat.S_ISCHR(mode) and found in majors


_KCMP = {"x86_64": 312, "aarch64": 272}
"""The number of the system call kcmp, of which the C library has no function."""

_KCMP_SINCE = (5, 7)
"""The release of Linux from which kcmp never waits: before, it takes a lock that a process holds during execve."""

_KCMP_FILES, _NO_THREAD = 2, 3
"""KCMP_FILES and ESRCH of Linux's uapi headers."""


def _share_files(one: int, other: int) -> bool:
    """Whether two threads surely have the same table of open files, or one has ended: the kernel tells in a microsecond."""
    system = os.uname()
    number, release = _KCMP.get(system.machine), re.match(r"(\d+)\.(\d+)", system.release)
    if number is None or release is None or (int(release[1]), int(release[2])) < _KCMP_SINCE:
        return False
    order = _SYSCALL(number, one, other, _KCMP_FILES, 0, 0)
    return order == 0 or (order < 0 and ctypes.get_errno() == _NO_THREAD)


class ProcFiles:
    """One mounted /proc."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def pids(self) -> tuple[int, ...]:
        """Return the pids of all current processes."""
        names = os.listdir(self._root)  # noqa: PTH208 - names are enough
        return tuple(int(name) for name in names if name.isascii() and name.isdigit())

    def stat(self, pid: int) -> Stat | None:
        """Return the process's stat. Fields are counted from the last `)`, because the name before it may contain anything."""
        return self._stat(str(pid))

    def _stat(self, folder: str) -> Stat | None:
        raw = self._read(f"{folder}/stat", _STAT_BYTES)
        if raw is None:
            return None
        fields = raw[raw.rfind(b")") + 1 :].split(None, 20)
        try:
            state, start_time, threads, flags = fields[0].decode("ascii"), int(fields[19]), int(fields[17]), int(fields[6])
        except (IndexError, ValueError):
            return None
        return Stat(state, start_time, threads, bool(flags & _KERNEL_THREAD), bool(flags & _EXITING))

    def is_ending(self, pid: int) -> bool:
        """Whether it closes its files now: they are not shown any more, but the driver frees their memory only after that."""
        _, stat = self._living(pid)
        return stat is not None and stat.is_exiting and stat.state not in _ENDED

    def cgroup(self, pid: int | str, known: Stat | None = None) -> str | None:
        """Return the text of the process's cgroup file; bytes that are not UTF-8 are escaped.

        `known`: its stat, if the caller has just read it.
        """
        raw = self._read(f"{self._living(pid, known)[0]}/cgroup")
        return None if raw is None else raw.decode("utf-8", "backslashreplace")

    def comm(self, pid: int) -> bytes | None:
        """Return the name as the process set it: any bytes."""
        raw = self._read(f"{pid}/comm")
        return None if raw is None else raw.removesuffix(b"\n")

    def status(self, pid: int) -> ProcessStatus | None:
        """Return the effective uid and the pids. The kernel escapes line feeds in the name, so no line can be forged."""
        raw = self._read(f"{pid}/status")
        if raw is None:
            return None
        uids = re.search(rb"^Uid:\t\d+\t(\d+)", raw, re.MULTILINE)
        pids = re.search(rb"^NSpid:((?:\t\d+)+)$", raw, re.MULTILINE)
        state = re.search(rb"^State:\t(\w)", raw, re.MULTILINE)
        return ProcessStatus(
            uid=int(uids[1]) if uids else None,
            namespace_pids=tuple(int(one) for one in pids[1].split()) if pids else (),
            state=_STATES.get(state[1], "") if state else "",
        )

    def namespace(self, pid: int | str) -> str | None:
        """Return the pid namespace, such as `pid:[4026531836]`. For other users' processes it needs CAP_SYS_PTRACE."""
        try:
            return os.readlink(f"{self._root}/{self._living(pid)[0]}/ns/pid")  # noqa: PTH115 - no path: it is the name of a namespace
        except OSError:
            return None

    def maps(self, pid: int, parts: Collection[bytes]) -> bool | None:
        """Whether the process's memory map contains one of these. For other users' processes it needs CAP_SYS_PTRACE.

        Waits for the lock on the process's memory map, which the process may hold while the kernel loads a page that it reads.
        """
        try:
            with open(f"{self._root}/{self._living(pid)[0]}/maps", "rb", buffering=0) as file:  # noqa: PTH123 - a path object costs more than the file
                tail, longest = b"", max(map(len, parts))
                while chunk := file.read(_CHUNK_BYTES):
                    if any(part in tail + chunk for part in parts):
                        return True
                    tail = chunk[-longest:]
                return False
        except OSError:
            return None

    def has_open(self, pid: int, majors: Container[int], seconds: float) -> bool | None:
        """Whether the process has a character device of these drivers open; None if one of its open files is not readable.

        A thread may have a table of open files of its own (CLONE_FILES). What is in a socket's queue, or registered with
        io_uring, is in no table, and is not seen.

        Also None after so many seconds of CPU time: a process may have a million files open. For other users' processes it
        needs CAP_DAC_READ_SEARCH.
        """
        deadline = time.thread_time() + seconds
        living, _ = self._living(pid)
        found, first = self._has_open(living, majors, deadline), int(living.rpartition("/")[2])
        for thread in self._threads(pid):
            if found is not False:
                break
            if time.thread_time() > deadline:
                return None
            if thread != first and not _share_files(first, thread):
                found = self._has_open(f"{pid}/task/{thread}", majors, deadline)
                if found is None and self._stat(f"{pid}/task/{thread}") is None:
                    found = False  # it has ended
        return found

    def _has_open(self, folder: str, majors: Container[int], deadline: float) -> bool | None:
        answers: set[bool | None] = set()
        try:
            with os.scandir(f"{self._root}/{folder}/fd") as files:
                for file in files:
                    answers.add(_is_device(file.path, majors))
                    if True in answers:
                        return True
                    if time.thread_time() > deadline:
                        return None
        except OSError:
            return None
        return None if None in answers else False

    def _living(self, pid: int | str, known: Stat | None = None) -> tuple[str, Stat | None]:
        """Return folder and stat of the process or, if its main thread has ended before the others, of a thread that lives."""
        found = known or (self.stat(pid) if isinstance(pid, int) else None)
        if found is not None and found.state in _ENDED and found.threads > 1:
            for thread in self._threads(pid):
                own = self._stat(f"{pid}/task/{thread}")
                if own is not None and own.state not in _ENDED:
                    return f"{pid}/task/{thread}", own
        return str(pid), found

    def _threads(self, pid: int | str) -> list[int]:
        try:
            return [int(name) for name in os.listdir(f"{self._root}/{pid}/task")]  # noqa: PTH208 - names are enough
        except OSError:
            return []

    def pid_max(self) -> int | None:
        """Return the kernel's limit of pids."""
        raw = self._read("sys/kernel/pid_max")
        return int(raw) if raw is not None and raw.strip().isdigit() else None

    def _read(self, name: str, size: int | None = None) -> bytes | None:
        """Return the whole file, or what one read of `size` returns of it: half the time of `open`."""
        try:
            file = os.open(f"{self._root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # The kernel may return less than is asked for before the end of a file.
            return os.read(file, size) if size else b"".join(iter(lambda: os.read(file, _PAGE_BYTES), b""))
        except OSError:
            return None
        finally:
            os.close(file)
