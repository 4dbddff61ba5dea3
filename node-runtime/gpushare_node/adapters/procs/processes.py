"""Processes: the runtime's interface to /proc and to signals, as one Protocol. Values only.

`procs.linux` implements it. A process is (pid, start time, cgroup); no signal is sent unless all three are unchanged.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Protocol

from gpushare_node.contract.struct import Struct
from gpushare_node.guard.inputs import ContainerId


class ProcessIdentity(Struct):
    """A process as /proc shows it.

    `candidates` are the containers that its cgroup path may mean, the likeliest first; empty outside pods and in our own
    container. One without the container's id is the pod itself, in whose own cgroup a sandbox runs. `procs.linux` returns at
    most one: the outermost, below what our own path shares with it (the node, if a cluster runs in a pod). That one is
    trustworthy: a process that may create cgroups can do so only below its container's own, and name them like another pod's;
    a further candidate would be believed while the API server does not know the first yet.

    `cgroup` ends at that container; a move between cgroups within it does not change the identity. `is_kernel`: a kernel
    thread.
    """

    pid: int
    start_time: int
    cgroup: str
    candidates: tuple[ContainerId, ...]
    is_kernel: bool = False


class Signal(StrEnum):
    """The signals that the runtime sends."""

    TERM = "SIGTERM"
    KILL = "SIGKILL"


class GpuUse(StrEnum):
    """Whether a process has a GPU's device open or mapped. UNREADABLE: not everything was readable, so it is unknown."""

    YES = "yes"
    NO = "no"
    UNREADABLE = "unreadable"


class SignalResult(StrEnum):
    """The result of a signal.

    GONE: the process had ended; REUSED: the pid belongs to another process now, or is in another container, and nothing was
    sent; REFUSED: we lack the permission, or it must never be signalled: outside pods, in our own container or process group,
    init, a kernel thread; DENIED: a security module of the kernel (AppArmor, SELinux) forbids it, whatever capabilities we
    have.
    """

    SENT = "sent"
    GONE = "gone"
    REUSED = "reused"
    REFUSED = "refused"
    DENIED = "denied"


class ProcessDetails(Struct):
    """The details of a process for messages.

    `comm` has at most 64 characters, and none that controls a terminal or breaks a line. `state` is one word of proc(5), as
    `zombie`; empty for a process that runs or sleeps.
    """

    comm: str
    uid: int | None
    namespace_pids: tuple[int, ...]
    state: str = ""


class Processes(Protocol):
    """The processes of this host. No method raises for a process that has ended."""

    def sees_host(self) -> bool:
        """Whether pids here are the host's: the driver reports only those."""
        ...

    def pid_max(self) -> int:
        """Return the largest possible pid."""
        ...

    def pids(self) -> tuple[int, ...]:
        """Return the pids of all current processes."""
        ...

    def look(self, pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        """Return the identities of those pids that live and are readable, as they are now."""
        ...

    def members(self, seen: ProcessIdentity) -> tuple[ProcessIdentity, ...]:
        """Return all processes whose identity has the same cgroup now: those of one container, or of a pod's sandbox."""
        ...

    def in_pods(self) -> tuple[ProcessIdentity, ...]:
        """Return every living process that is in a pod."""
        ...

    def kill_group(self, seen: ProcessIdentity) -> bool:
        """Have the kernel kill everything in its container's cgroup; False if it cannot."""
        ...

    def uses_gpu(self, pid: int) -> GpuUse:
        """Whether the process has a GPU's device open or mapped. Returns in bounded time, whatever the process has open."""
        ...

    def details(self, pid: int) -> ProcessDetails | None:
        """Return the details of the process for messages; None if it has ended."""
        ...

    def send(self, seen: ProcessIdentity, signal: Signal) -> SignalResult:
        """Signal it through a pidfd, after checking that start time and cgroup are unchanged."""
        ...

    def has_ended(self, seen: ProcessIdentity) -> bool:
        """Whether it has ended or is a zombie; a reused pid is another process."""
        ...
