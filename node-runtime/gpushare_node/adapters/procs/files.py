"""The files of /proc, as values. Reads and never writes; a process that has ended, or may not be read, is None."""

import os
import re
import stat
from pathlib import Path
from typing import NamedTuple

from gpushare_node.core.structs import Struct

_STAT_BYTES = 1024
"""A stat line is shorter: 52 numbers and a name of at most 64 bytes; what is read here begins within the first 500."""

_CHUNK_BYTES = 1 << 16
_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD of the kernel's task flags."""


class Stat(NamedTuple):
    """A process's line of numbers. `start_time` is in clock ticks since boot."""

    state: str
    start_time: int
    threads: int
    is_kernel: bool

    def has_ended(self) -> bool:
        """Whether only a zombie is left. A first thread that has ended before the others looks like one too."""
        return self.state in ("Z", "X") and self.threads <= 1


class ProcessStatus(Struct):
    """What is read of /proc/PID/status. `namespace_pids` goes from the outermost namespace in."""

    uid: int | None
    namespace_pids: tuple[int, ...]


def _is_device(entry: "os.DirEntry[str]", major: int) -> bool | None:
    """Whether this open file is a device of the driver; None where that cannot be seen. One closed meanwhile is none."""
    try:
        found = entry.stat()
    except FileNotFoundError:
        return False
    except OSError:
        return None
    return stat.S_ISCHR(found.st_mode) and os.major(found.st_rdev) == major


class ProcFiles:
    """One mounted /proc."""

    def __init__(self, root: Path) -> None:
        self._root = str(root)

    def pids(self) -> tuple[int, ...]:
        """Every process that there is now."""
        names = os.listdir(self._root)  # noqa: PTH208 - names are enough
        return tuple(int(name) for name in names if name.isascii() and name.isdigit())

    def stat(self, pid: int) -> Stat | None:
        """The process's stat. Fields are counted from the last `)`, for the name before it may hold anything."""
        raw = self._read(f"{pid}/stat", _STAT_BYTES)
        if raw is None:
            return None
        fields = raw[raw.rfind(b")") + 1 :].split(None, 20)
        try:
            return Stat(fields[0].decode("ascii"), int(fields[19]), int(fields[17]), bool(int(fields[6]) & _KERNEL_THREAD))
        except (IndexError, ValueError):
            return None

    def cgroup(self, pid: int | str) -> str | None:
        """The text of the process's cgroup file; bytes that are no UTF-8 are escaped."""
        raw = self._read_whole(f"{pid}/cgroup")
        return None if raw is None else raw.decode("utf-8", "backslashreplace")

    def comm(self, pid: int) -> bytes | None:
        """The name as the process has set it: any bytes."""
        raw = self._read_whole(f"{pid}/comm")
        return None if raw is None else raw.removesuffix(b"\n")

    def status(self, pid: int) -> ProcessStatus | None:
        """The effective uid and the pids. The kernel escapes line feeds in the name, so no line can be forged."""
        raw = self._read_whole(f"{pid}/status")
        if raw is None:
            return None
        uids = re.search(rb"^Uid:\t\d+\t(\d+)", raw, re.MULTILINE)
        pids = re.search(rb"^NSpid:((?:\t\d+)+)$", raw, re.MULTILINE)
        return ProcessStatus(
            uid=int(uids[1]) if uids else None,
            namespace_pids=tuple(int(one) for one in pids[1].split()) if pids else (),
        )

    def namespace(self, pid: int | str) -> str | None:
        """The name of the process's pid namespace, such as `pid:[4026531836]`. Other users' needs CAP_SYS_PTRACE."""
        try:
            return os.readlink(f"{self._root}/{pid}/ns/pid")  # noqa: PTH115 - no path: it is the name of a namespace
        except OSError:
            return None

    def maps(self, pid: int, part: bytes) -> bool | None:
        """Whether this stands anywhere in the process's memory map. Other users' needs CAP_SYS_PTRACE.

        Waits for the process's lock on its memory, which it may hold for as long as a page that it reads is on its way.
        """
        try:
            with open(f"{self._root}/{pid}/maps", "rb", buffering=0) as file:  # noqa: PTH123 - a path object costs more than the file
                tail = b""
                while chunk := file.read(_CHUNK_BYTES):
                    if part in tail + chunk:
                        return True
                    tail = chunk[-len(part) :]
                return False
        except OSError:
            return None

    def has_open(self, pid: int, major: int) -> bool | None:
        """Whether the process has a character device of this driver open; None where a file that it has open cannot be seen.

        Other users' need CAP_DAC_READ_SEARCH. May take as long as the server of an open file (FUSE, NFS) takes to answer.
        """
        answers = set()
        try:
            with os.scandir(f"{self._root}/{pid}/fd") as entries:
                for entry in entries:
                    answers.add(_is_device(entry, major))
                    if True in answers:
                        return True
        except OSError:
            return None
        return None if None in answers else False

    def pid_max(self) -> int | None:
        """The kernel's bound on pids."""
        raw = self._read_whole("sys/kernel/pid_max")
        return int(raw) if raw is not None and raw.strip().isdigit() else None

    def _read_whole(self, name: str) -> bytes | None:
        """The file, which may be longer than one read gives."""
        try:
            with open(f"{self._root}/{name}", "rb") as file:  # noqa: PTH123 - as above
                return file.read()
        except OSError:
            return None

    def _read(self, name: str, size: int) -> bytes | None:
        """The beginning of the file, by the fewest system calls: half the time of `open`."""
        try:
            file = os.open(f"{self._root}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            return os.read(file, size)
        except OSError:
            return None
        finally:
            os.close(file)
