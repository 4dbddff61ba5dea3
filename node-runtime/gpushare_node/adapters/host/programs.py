"""The host's programs, found in its own file system and run there with a timeout, and its boot id. Decides nothing.

A GPU is reset, and new MIG instances get their device nodes, by programs: the driver has no call for that.

With hostPID the host's root is that of its first process, mounts and `/dev` included; if gpu-operator installs the driver, its
programs are below `/run/nvidia/driver`. Without hostPID the first root is the one in which this program runs.
"""

import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from gpushare_node.contract.policy import Vendor
from gpushare_node.contract.struct import Struct
from gpushare_node.vendors import of

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


_RESET_SECONDS = 120.0
_NODES_SECONDS = 60.0


class Machine(Struct):
    """What a change of GPUs needs from the host besides the driver. `reset` takes a PCI address.

    Both calls return what went wrong as a sentence, also if the host lacks the program for it; None: it is done.
    `find_servers` returns those of the pids that are MPS servers; `name_openers` names the processes that have a GPU's device
    open or mapped, `name_processes` these. `find_units` returns the host's units of these processes, by pid: those of pods have
    none.
    """

    boot_id: str
    reset: Callable[[str], str | None]
    make_nodes: Callable[[], str | None]
    find_servers: Callable[[Collection[int]], frozenset[int]] = lambda _: frozenset()
    name_openers: Callable[[], tuple[str, ...]] = tuple
    name_processes: Callable[[Collection[int]], Mapping[int, str]] = lambda _: {}
    find_units: Callable[[Collection[int]], Mapping[int, str]] = lambda _: {}


def this_machine(roots: Iterable[Path] = ROOTS, vendor: Vendor = Vendor.NVIDIA) -> Machine:
    """Return the host that this program runs on, with the programs of this vendor."""
    run, names = partial(_run, tuple(roots)), of(vendor)
    return Machine(
        boot_id=boot_id(),
        reset=lambda pci_bus_id: run((*names.reset_command, pci_bus_id), _RESET_SECONDS),
        make_nodes=partial(run, names.nodes_command, _NODES_SECONDS),
    )


def _run(roots: tuple[Path, ...], command: tuple[str, ...], timeout_seconds: float) -> str | None:
    if not command:
        return "this vendor has no program for it"
    # Searched at every call: the driver's container may have started since.
    program = find(command[0], roots)
    return f"there is no {command[0]} on the host" if program is None else program.run(command[1:], timeout_seconds)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's id of this boot; it is the same in every container."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
