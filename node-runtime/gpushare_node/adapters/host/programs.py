"""Programs of the host: found in the host's own file system, and run there with a timeout. Decides nothing.

With hostPID the host's root is that of its first process, mounts and `/dev` included; if gpu-operator installs the driver, its
programs are below `/run/nvidia/driver`. Without hostPID the first root is the one in which this program runs.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from gpushare_node.contract.struct import Struct

ROOTS = (Path("/proc/1/root"), Path("/proc/1/root/run/nvidia/driver"), Path("/"))
"""The roots in which programs are searched, in this order."""

_FOLDERS = ("usr/bin", "usr/sbin", "usr/local/bin", "bin", "sbin")

_ENTER = "import os, sys; os.chroot(sys.argv[1]); os.chdir('/'); os.execv(sys.argv[2], sys.argv[2:])"
"""A separate process enters the root: this one must not, and it may have threads."""

_MAX_MESSAGE = 300
_DEATH_SECONDS = 2.0


class Program(Struct):
    """A program that exists: `path` is its path inside `root`."""

    root: Path
    path: str

    def run(self, arguments: Sequence[str], timeout_seconds: float) -> str | None:
        """Run it and wait. None if it succeeded, else a sentence."""
        name = Path(self.path).name
        command = [sys.executable, "-I", "-c", _ENTER, str(self.root), self.path, *arguments]
        try:
            process = subprocess.Popen(  # noqa: S603 - no shell; the arguments are ours
                command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        except OSError as error:
            return f"{name} could not be started: {error.strerror}"
        try:
            output, _ = process.communicate(timeout=timeout_seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            # A process that is stuck in the driver does not end even then, so the wait is bounded.
            with suppress(subprocess.TimeoutExpired):
                process.wait(_DEATH_SECONDS)
            if process.stdout is not None:
                process.stdout.close()
            return f"{name} did not finish within {timeout_seconds:g} seconds"
        message = " ".join(output.decode(errors="replace").split())[-_MAX_MESSAGE:]
        return None if process.returncode == 0 else f"{name} exited with {process.returncode}: {message or 'no output'}"


def find(name: str, roots: Iterable[Path] = ROOTS) -> Program | None:
    """Return the program of this name; None if no root has it."""
    for root in roots:
        for folder in _FOLDERS:
            try:
                if (root / folder / name).is_file():
                    return Program(root=root, path=f"/{folder}/{name}")
            except OSError:
                continue
    return None
