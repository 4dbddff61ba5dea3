"""MPS on this node: which daemons run, whether they are reachable, what limits they set, and which servers serve no client."""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path

from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import ProcessDetails, ProcessIdentity
from gpushare_node.guard.process_list import Mps

PROGRAM = "nvidia-cuda-mps-control"

_MAX_ANSWER_BYTES = 1 << 16
_MAX_PIDS, _MAX_DIGITS = 4096, 10
"""Most numbers of a list, and digits of a pid. Clients can replace the daemon's socket, and answer in its place."""
_LIMIT = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?) ?([KMGT])(?:i?B)?(?!\w)", re.IGNORECASE)
_UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}

_FAULT = re.compile(r"\bFAULT\b")


class MpsError(Exception):
    """The daemon returned no usable answer. The text names the command and what came instead."""


class ControlProgram:
    """The control daemon behind one pipe directory, called through its program: a command in, an answer out.

    Owns the dialogue and its limits in time and size. If a daemon hangs, refuses or returns garbage, that is only an MpsError.
    Commands and answers: NVIDIA's MPS documentation, `nvidia-cuda-mps-control` in the appendix on tools.
    """

    def __init__(self, pipe: Path, *, program: str = PROGRAM, timeout_seconds: float = 2.0) -> None:
        """`program` is started for each command, which it reads from its standard input."""
        self.pipe = pipe
        self._program = program
        self._timeout_seconds = timeout_seconds

    def answers(self) -> bool:
        """Whether the daemon answers, by the command that the device plugin's own health check uses."""
        try:
            return 0 < float(self.ask("get_default_active_thread_percentage")) <= 100
        except (MpsError, ValueError):
            return False

    def servers(self) -> tuple[int, ...]:
        """Return the pids of its servers, in its own pid namespace. MpsError."""
        return self._numbers("get_server_list")

    def has_fault(self, server: int) -> bool:
        """Whether a server is in state FAULT: it accepts no client until all that the fault concerns have ended. MpsError."""
        return _FAULT.search(self.ask(f"get_server_status {server}")) is not None

    def limit_mib(self, device: int | str) -> int | None:
        """Return how much one client may allocate on a device (ordinal or uuid) by default; None without a limit. MpsError."""
        found = _LIMIT.findall(self.ask(f"get_default_device_pinned_mem_limit {device}"))
        return int(float(found[0][0]) * _UNITS_MIB[found[0][1].upper()]) if len(found) == 1 else None

    def ask(self, command: str) -> str:
        """Return the daemon's answer without surrounding white space. MpsError."""
        environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": str(self.pipe)}
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell, and commands consist of our words and numbers
                [self._program],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        except OSError as error:
            raise MpsError(f"{command}: {self._program} cannot be started: {error.strerror}") from error
        try:
            answer = self._converse(process, command)
        finally:
            _dispose(process)
        if process.returncode != 0:
            raise MpsError(f"{command}: exit code {process.returncode}")
        return answer.decode("utf-8", "replace").strip()

    def _converse(self, process: "subprocess.Popen[bytes]", command: str) -> bytes:
        """Write the command, and read the answer to its end. A pipe that a grandchild keeps open counts as a hang."""
        assert process.stdin is not None  # noqa: S101 - asked for above
        assert process.stdout is not None  # noqa: S101 - asked for above
        deadline = time.monotonic() + self._timeout_seconds
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(f"{command}\n".encode())
            process.stdin.close()
        answer = b""
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([process.stdout], [], [], left)[0]:
                break
            chunk = os.read(process.stdout.fileno(), _MAX_ANSWER_BYTES)
            answer += chunk
            if len(answer) > _MAX_ANSWER_BYTES:
                raise MpsError(f"{command}: the answer is too long")
            if not chunk:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(max(0.0, deadline - time.monotonic()))
                    return answer
        raise MpsError(f"{command}: no answer within {self._timeout_seconds:g} s")

    def _numbers(self, command: str) -> tuple[int, ...]:
        words = self.ask(command).split()
        if len(words) > _MAX_PIDS or not all(word.isascii() and word.isdigit() and len(word) <= _MAX_DIGITS for word in words):
            raise MpsError(f"{command}: the answer is not a list of numbers")
        return tuple(int(word) for word in words)


def _dispose(process: "subprocess.Popen[bytes]") -> None:
    """Kill the program with its whole process group, and close the pipes. If SIGKILL has no effect, the wait is short."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(1.0)


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

    def __init__(
        self,
        processes: LinuxProcesses,
        *,
        resources: Collection[str] = (),
        root: Path = ROOT,
        program: str = PROGRAM,
        timeout_seconds: float = 2.0,
    ) -> None:
        """`resources` are those that must be served, empty: all that have a folder. The plugin leaves those of former names."""
        self._processes = processes
        self._resources = frozenset(resources)
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
