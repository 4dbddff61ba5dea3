"""Python programs as processes of their own, without the price of starting Python and importing what they use.

A server, one for each process of pytest, has imported their modules and forks for every call. The child has its caller's
arguments, folder, environment and streams, and ends as the program ends: with its exit code, by a signal, or by `os._exit`.
"""

import atexit
import contextlib
import functools
import importlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!i")


class Process:
    """A program that runs: its text, as `python -c` has it, and the arguments behind that. What it says is kept for the end.

    The methods are those of `subprocess.Popen`.
    """

    def __init__(
        self,
        program: str,
        arguments: Sequence[str],
        preloaded: Sequence[str],
        *,
        environment: Mapping[str, str],
        cwd: Path | None = None,
        stdin: bytes = b"",
    ) -> None:
        request = {
            "program": program,
            "arguments": list(arguments),
            "cwd": str(cwd or Path.cwd()),
            "environment": dict(environment),
        }
        text = json.dumps(request).encode()
        self.returncode: int | None = None
        self._told = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 - until it has been read
        self._status, theirs = os.pipe()
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            server, lock = _server(tuple(preloaded))
            with lock:
                streams = (stream.fileno() for stream in (given, *self._told))
                socket.send_fds(server, [_LENGTH.pack(len(text))], [*streams, theirs])
                server.sendall(text)
        os.close(theirs)
        self.pid = self._number()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.wait()
        for file in self._told:
            file.close()

    def poll(self) -> int | None:
        """The exit code, negative for a signal, once there is one."""
        return self.wait() if self.returncode is None and select.select([self._status], [], [], 0)[0] else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, when it has ended. Raises TimeoutExpired."""
        if self.returncode is None:
            if not select.select([self._status], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            self.returncode = self._number()
            os.close(self._status)
        return self.returncode

    def communicate(self, timeout: float | None = None) -> tuple[str, str]:
        """What it has said on stdout and stderr, when it has ended."""
        self.wait(timeout)
        texts = []
        for file in self._told:
            with file:
                file.seek(0)
                texts.append(file.read().decode())
        return texts[0], texts[1]

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def _number(self) -> int:
        return int(_NUMBER.unpack(os.read(self._status, _NUMBER.size))[0])


@functools.cache
def _server(preloaded: tuple[str, ...]) -> tuple[socket.socket, threading.Lock]:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.support.forked", str(theirs.fileno()), *preloaded]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[2], start_new_session=True)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours, threading.Lock()


def serve(connection: socket.socket) -> None:
    """Fork for each call, and tell each caller how its program has ended, until the other side is gone."""
    waiting = select.poll()
    waiting.register(connection, select.POLLIN)
    running: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in waiting.poll():
            if ready in running:
                waiting.unregister(ready)
                pid, status = running.pop(ready)
                _tell_end(pid, status)
                os.close(ready)
                continue
            try:
                head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 4)
                if not head:
                    return
                request = json.loads(_exactly(connection, _LENGTH.unpack(head)[0]))
            except (EOFError, ConnectionError):
                return
            *streams, status = descriptors
            child = os.fork()
            if child == 0:
                connection.close()
                for descriptor in (status, *running, *(told for _, told in running.values())):
                    os.close(descriptor)
                _become(request, streams)
            for descriptor in streams:
                os.close(descriptor)
            os.write(status, _NUMBER.pack(child))
            ended = os.pidfd_open(child)
            running[ended] = child, status
            waiting.register(ended, select.POLLIN)


def _tell_end(pid: int, status: int) -> None:
    _, ended = os.waitpid(pid, 0)
    with contextlib.suppress(BrokenPipeError):  # its caller has gone
        os.write(status, _NUMBER.pack(os.waitstatus_to_exitcode(ended)))
    os.close(status)


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def _become(request: dict[str, Any], streams: list[int]) -> None:
    """The child: be the program as its caller started it. Does not return."""
    code = 70
    try:
        for target, descriptor in enumerate(streams):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        sys.argv = ["-c", *request["arguments"]]
        for name, target, mode, errors in (
            ("stdin", 0, "r", "strict"),
            ("stdout", 1, "w", "strict"),
            ("stderr", 2, "w", "backslashreplace"),
        ):
            setattr(sys, name, open(target, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115
        code = _run(request["program"])
        # As Python ends: after its threads, with nothing left in a buffer.
        threading._shutdown()  # type: ignore[attr-defined]
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


def _run(program: str) -> int:
    try:
        exec(compile(program, "<string>", "exec"), {"__name__": "__main__"})
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    return 0


if __name__ == "__main__":
    for name in sys.argv[2:]:
        importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])))
