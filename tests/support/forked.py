"""A program of ours as a process of its own, without the price of starting Python and importing it.

A server, one for each process of pytest, has imported the program and forks for every call. The child has its caller's
arguments, folder, environment and streams, and ends as the program ends: with its exit code, by a signal, or by `os._exit`.
"""

import atexit
import functools
import importlib
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LENGTH = struct.Struct("!I")


def run(
    module: str, preloaded: Sequence[str], arguments: Sequence[str], *, cwd: Path | None, environment: Mapping[str, str],
    stdin: IO[bytes], stdout: IO[Any] | int, stderr: IO[Any] | int,
) -> int:
    """Call `main` of the module; its exit code, negative for a signal as subprocess has it."""
    request = {"arguments": list(arguments), "cwd": str(cwd or Path.cwd()), "environment": dict(environment)}
    descriptors = [stream if isinstance(stream, int) else stream.fileno() for stream in (stdin, stdout, stderr)]
    server = _server(module, tuple(preloaded))
    text = json.dumps(request).encode()
    socket.send_fds(server, [_LENGTH.pack(len(text))], descriptors)
    server.sendall(text)
    return int(_LENGTH.unpack(_exactly(server, _LENGTH.size))[0]) - 256


@functools.cache
def _server(module: str, preloaded: tuple[str, ...]) -> socket.socket:
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-m", "tests.support.forked", str(theirs.fileno()), module, *preloaded]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], cwd=Path(__file__).parents[2], start_new_session=True)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _exactly(connection: socket.socket, count: int) -> bytes:
    received = b""
    while len(received) < count:
        part = connection.recv(count - len(received))
        if not part:
            raise EOFError
        received += part
    return received


def serve(connection: socket.socket, module: str) -> None:
    """Fork for each call until the other side is gone."""
    main = importlib.import_module(module).main
    while True:
        try:
            head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, 3)
            if not head:
                return
            request = json.loads(_exactly(connection, _LENGTH.unpack(head)[0]))
        except (EOFError, ConnectionError):
            return
        child = os.fork()
        if child == 0:
            connection.close()
            _become(main, request, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        _, status = os.waitpid(child, 0)
        connection.sendall(_LENGTH.pack(os.waitstatus_to_exitcode(status) + 256))


def _become(main: Any, request: dict[str, Any], descriptors: list[int]) -> None:
    """The child: be the program as its caller started it. Does not return."""
    code = 70
    try:
        for target, descriptor in enumerate(descriptors):
            os.dup2(descriptor, target)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(request["environment"])
        os.chdir(request["cwd"])
        sys.argv = ["gpushare", *request["arguments"]]
        for name, target, mode, errors in (("stdin", 0, "r", "strict"), ("stdout", 1, "w", "strict"),
                                           ("stderr", 2, "w", "backslashreplace")):
            setattr(sys, name, open(target, mode, encoding="utf-8", errors=errors, closefd=False))  # noqa: SIM115
        code = main()
        sys.stdout.flush()
        sys.stderr.flush()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1 if end.code else 0
    except BaseException:
        sys.excepthook(*sys.exc_info())
        sys.stderr.flush()
        code = 1
    finally:
        os._exit(code)


if __name__ == "__main__":
    for name in sys.argv[3:]:
        importlib.import_module(name)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
