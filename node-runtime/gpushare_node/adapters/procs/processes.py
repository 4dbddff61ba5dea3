"""Processes: what the rest of the runtime knows of /proc and of signals, as one Protocol. Values only.

`procs.linux` is the real one. A process is (pid, start time, cgroup); no signal is sent before all three are found unchanged.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from gpushare_node.core.structs import Struct
from gpushare_node.guard.identity import ContainerId


class ProcessIdentity(Struct):
    """A process as /proc shows it.

    `candidates` are the containers that its cgroup path may mean, the likeliest first; empty outside pods and in our own
    container. `procs.linux` names one at most: the outermost, below what our own path shares with it (the node, where a cluster
    runs in a pod). That one is the kernel's word. Whoever may create cgroups can do so below its container's alone, and name
    them like another pod's; a further one would be believed while the API server does not know the first yet.

    `cgroup` ends at that container; moving between cgroups within it makes nobody another. `is_kernel`: a kernel thread.
    """

    pid: int
    start_time: int
    cgroup: str
    candidates: tuple[ContainerId, ...]
    is_kernel: bool = False


class Signal(StrEnum):
    """What can be sent."""

    TERM = "SIGTERM"
    KILL = "SIGKILL"


class GpuUse(StrEnum):
    """Whether a process has a GPU's device open or mapped. UNREADABLE: not all of it could be seen, so nothing is known."""

    YES = "yes"
    NO = "no"
    UNREADABLE = "unreadable"


class SignalResult(StrEnum):
    """What came of a signal.

    GONE: it had ended; REUSED: the pid is somebody else's now, or in another container, nothing was sent; REFUSED: we have no
    permission, or nobody may: outside pods, in our own container or process group, init, a kernel thread; DENIED: a security
    module of the kernel (AppArmor, SELinux) forbids it, whatever capabilities we have.
    """

    SENT = "sent"
    GONE = "gone"
    REUSED = "reused"
    REFUSED = "refused"
    DENIED = "denied"


class ProcessDetails(Struct):
    """What is told of a process to people.

    `comm` has nothing in it that steers a terminal or breaks a line, at most 64 characters.
    """

    comm: str
    uid: int | None
    namespace_pids: tuple[int, ...]


class Processes(Protocol):
    """The processes of this host. Nothing raises for a process that has ended."""

    def sees_host(self) -> bool:
        """Whether process ids here are the host's: the driver tells nothing else."""
        ...

    def pid_max(self) -> int:
        """The largest pid that can be."""
        ...

    def look(self, pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        """Those of the pids that exist and can be read. Cached by (pid, start time); a reused pid is read anew."""
        ...

    def forget(self, pids: Iterable[int]) -> None:
        """Read everything about these anew at the next look."""
        ...

    def members(self, seen: ProcessIdentity) -> tuple[ProcessIdentity, ...]:
        """All processes that are in the same container now, in its sub-cgroups too."""
        ...

    def uses_gpu(self, pid: int) -> GpuUse:
        """Whether the process has a GPU's device open or mapped. Answers in bounded time, whatever the process has open."""
        ...

    def portrait(self, pid: int) -> ProcessDetails | None:
        """The process for people; None if it has ended."""
        ...

    def send(self, seen: ProcessIdentity, signal: Signal) -> SignalResult:
        """Signal it through a pidfd, after start time and cgroup were found to be what they were."""
        ...

    def has_ended(self, seen: ProcessIdentity) -> bool:
        """Whether it is gone or a zombie; a reused pid is another process."""
        ...
