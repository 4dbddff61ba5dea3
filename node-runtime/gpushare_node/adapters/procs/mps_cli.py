"""One MPS control daemon, called through its program `nvidia-cuda-mps-control`: a command in, an answer out.

Owns the dialogue and its limits in time and size. If a daemon hangs, refuses or returns garbage, that is only an MpsError.
Commands and answers: NVIDIA's MPS documentation, `nvidia-cuda-mps-control` in the appendix on tools.
"""

import contextlib
import os
import re
import select
import signal
import subprocess
import time
from pathlib import Path

PROGRAM = "nvidia-cuda-mps-control"

_MAX_ANSWER_BYTES = 1 << 16
_MAX_PIDS, _MAX_DIGITS = 4096, 10
"""Most numbers of a list, and digits of a pid. Clients can replace the daemon's socket, and answer in its place."""
_LIMIT = re.compile(r"(?<![\w.-])(\d+(?:\.\d+)?) ?([KMGT])(?:i?B)?(?!\w)", re.IGNORECASE)
_UNITS_MIB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024 * 1024}

# Neither wording is documented; the program exits with 0 in either case.
_REFUSAL = re.compile(r"error|fail|invalid|unknown|unrecognized|denied|refused|not |cannot|no such|usage", re.IGNORECASE)
_FAULT = re.compile(r"\bFAULT\b")
_CONSENT = re.compile(r"success|terminated", re.IGNORECASE)


class MpsError(Exception):
    """The daemon returned no usable answer. The text names the command and what came instead."""


class ControlProgram:
    """The control daemon behind one pipe directory."""

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

    def clients(self, server: int) -> tuple[int, ...]:
        """Return the pids of a server's clients, in its own pid namespace. MpsError."""
        return self._numbers(f"get_client_list {server}")

    def has_fault(self, server: int) -> bool:
        """Whether a server is in state FAULT: it accepts no client until all that the fault concerns have ended. MpsError."""
        return _FAULT.search(self.ask(f"get_server_status {server}")) is not None

    def terminate(self, server: int, client: int) -> bool:
        """End a client's work on the GPU, not its process. Whether the daemon confirmed it, or no longer lists it. MpsError.

        An exit code of 0 means nothing, and an answer that is neither yes nor no counts only if the client is gone.
        """
        answer = self.ask(f"terminate_client {server} {client}")
        if _REFUSAL.search(answer):
            return False
        return bool(_CONSENT.search(answer)) or client not in self.clients(server)

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
