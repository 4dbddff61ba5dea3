"""MPS on this node: which daemons run, whether they are reachable, and how to terminate their clients.

A signal to an MPS client with work on the GPU has undefined effects and can end every other client; so the daemon must
terminate the client first. Owns the translation between our pids and a daemon's. Does not decide which client.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.mps_cli import PROGRAM, ControlProgram, MpsError
from gpushare_node.adapters.procs.processes import ProcessDetails, ProcessIdentity
from gpushare_node.guard.identity import Process
from gpushare_node.guard.process_list import Mps

ROOT = Path("/run/nvidia/mps")
"""The directory in which the device plugin has `<resource>/pipe`; a resource's name contains one slash."""

_MAX_SERVERS = 16
"""A daemon has one server for each user; each costs a question of up to two seconds."""

SERVER = "nvidia-cuda-mps-server"
_COMM = SERVER[:15]
"""The kernel keeps 15 bytes of a program's name: the control daemon has the same, and must not be signalled either."""


def is_server(details: ProcessDetails | None, *, is_tenant: bool) -> bool:
    """Whether a process is an MPS server: root's, with that name, and not in a tenant's pod. Any tenant can use the name."""
    return details is not None and details.comm in (SERVER, _COMM) and details.uid == 0 and not is_tenant


def find_servers(
    processes: LinuxProcesses, pids: Iterable[int], *, is_system: Callable[[ProcessIdentity], bool]
) -> Mapping[int, ProcessDetails]:
    """Return those of the pids that are MPS servers. `is_system` is called only for processes with the name."""
    found = {}
    for pid in pids:
        details = processes.details(pid)
        if not is_server(details, is_tenant=False):
            continue
        seen = processes.look((pid,)).get(pid)
        if details is not None and seen is not None and is_system(seen):
            found[pid] = details
    return found


class HostMpsControl:
    """The MPS daemons of this node. Not thread-safe; a call takes at most seconds."""

    def __init__(  # noqa: PLR0913 - where it looks, and for what
        self,
        processes: LinuxProcesses,
        *,
        is_system: Callable[[ProcessIdentity], bool],
        resources: Collection[str] = (),
        root: Path = ROOT,
        program: str = PROGRAM,
        timeout_seconds: float = 2.0,
    ) -> None:
        """`is_system` returns whether a process belongs to the cluster or the host: not a tenant's, and not merely unknown.

        `resources` are those that must be served, empty: all that have a folder. The plugin leaves the folders of former names.
        """
        self._processes = processes
        self._resources = frozenset(resources)
        self._is_system = is_system
        self._root = root
        self._program = program
        self._timeout_seconds = timeout_seconds

    def state(self) -> Mps:
        """Return the state of MPS. REACHABLE only if every daemon answers: we do not know which one serves a client."""
        daemons = self._required_daemons()
        if not daemons:
            return Mps.OFF
        return Mps.REACHABLE if all(daemon.answers() for daemon in daemons) else Mps.UNREACHABLE

    def limit_mib(self, device: int | str) -> int | None:
        """Return how much one client may allocate on this device, the most of all daemons. None: no limit, or no answer."""
        limits = []
        for daemon in self._required_daemons():
            try:
                limits.append(daemon.limit_mib(device))
            except MpsError:
                return None
        known = [limit for limit in limits if limit is not None]
        return max(known) if known and len(known) == len(limits) else None

    def faults(self) -> frozenset[str]:
        """Return which servers serve no client although their daemon answers, and why. Only what is certain."""
        daemons = self._required_daemons()
        living = self._living_pids() if daemons and self._processes.sees_host() else None
        return frozenset(
            f"MPS server {server} of {daemon.pipe.parent.name} {trouble}"
            for daemon in daemons
            for server, trouble in self._faults(daemon, living)
        )

    def terminate(self, targets: Iterable[Process]) -> frozenset[Process]:
        """Terminate these clients, and return those that the daemon confirmed, for `GuardInput.terminated_clients`."""
        return frozenset(target for target in targets if self._terminate(target))

    def _daemons(self) -> tuple[ControlProgram, ...]:
        pipes = sorted({*self._root.glob("*/pipe"), *self._root.glob("*/*/pipe")})
        return tuple(
            ControlProgram(pipe, program=self._program, timeout_seconds=self._timeout_seconds)
            for pipe in pipes
            if pipe.is_dir()
        )

    def _required_daemons(self) -> tuple[ControlProgram, ...]:
        return tuple(
            daemon
            for daemon in self._daemons()
            if not self._resources or daemon.pipe.parent.relative_to(self._root).as_posix() in self._resources
        )

    def _faults(self, daemon: ControlProgram, living: frozenset[int] | None) -> Iterator[tuple[int, str]]:
        with contextlib.suppress(MpsError):
            for server in daemon.servers()[:_MAX_SERVERS]:
                if living is not None and server not in living:
                    yield server, "has exited, but its daemon still lists it"
                elif daemon.has_fault(server):
                    yield server, "is in state FAULT"

    def _living_pids(self) -> frozenset[int]:
        """Return the pids of all living processes in every namespace: which of them is the daemon's is not known."""
        processes = self._processes
        known = ((pid, processes.details(pid)) for pid in processes.pids())
        return frozenset(
            chain.from_iterable(
                details.namespace_pids for pid, details in known if details is not None and processes.is_living(pid)
            )
        )

    def _terminate(self, target: Process) -> bool:
        for daemon in self._daemons():
            try:
                for server, client in self._servings(daemon, target):
                    return self._is_same(target) and daemon.terminate(server, client)
            except MpsError:
                continue
        return False

    def _servings(self, daemon: ControlProgram, target: Process) -> Iterator[tuple[int, int]]:
        """Yield the daemon's servers that have the process as a client, and its pid in the daemon's namespace. MpsError."""
        for server in daemon.servers():
            client = self._translate(target.pid, server)
            if client is not None and client in daemon.clients(server):
                yield server, client

    def _translate(self, pid: int, server: int) -> int | None:
        """Return our pid in the namespace of a server's daemon; None if uncertain, because it may be another process's there.

        A daemon uses its servers' pid namespace, so the server is searched among our processes: a daemon of the host has ours.
        """
        found = self._find_server(server)
        target = self._processes.details(pid)
        if found is None or target is None:
            return None
        pid_of_server, details = found
        if len(details.namespace_pids) == 1:
            return pid
        namespace = self._processes.namespace(pid_of_server)
        is_shared = namespace is not None and namespace == self._processes.namespace(pid)
        return target.namespace_pids[-1] if is_shared and target.namespace_pids else None

    def _find_server(self, server: int) -> tuple[int, ProcessDetails] | None:
        """Return the MPS server that has this pid in its own namespace; None if there is none, or if there are several."""
        servers = find_servers(self._processes, self._processes.pids(), is_system=self._is_system)
        found = [(pid, details) for pid, details in servers.items() if details.namespace_pids[-1:] == (server,)]
        return found[0] if len(found) == 1 else None

    def _is_same(self, target: Process) -> bool:
        """Whether the pid still belongs to this process, in this container."""
        seen = self._processes.look((target.pid,)).get(target.pid)
        return seen is not None and (seen.start_time, seen.cgroup) == (target.start_time, target.cgroup)
