"""Operations on a GPU that have no NVML call: a reset, and the device nodes of new MIG instances. Decides nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from gpushare_node.adapters.host.boot import boot_id
from gpushare_node.adapters.host.programs import ROOTS, find
from gpushare_node.core.structs import Struct

_RESET_SECONDS = 120.0
_NODES_SECONDS = 60.0


class Machine(Struct):
    """What a change of GPUs needs from the host besides the driver. `reset` takes a PCI address.

    Both calls return what went wrong as a sentence, also if the host lacks the program for it; None: it is done.
    `find_servers` returns those of the pids that are MPS servers; `name_openers` names the processes that have a GPU's device
    open or mapped, `name_processes` these.
    """

    boot_id: str
    reset: Callable[[str], str | None]
    make_nodes: Callable[[], str | None]
    find_servers: Callable[[Collection[int]], frozenset[int]] = lambda _: frozenset()
    name_openers: Callable[[], tuple[str, ...]] = tuple
    name_processes: Callable[[Collection[int]], Mapping[int, str]] = lambda _: {}


def this_machine(roots: Iterable[Path] = ROOTS) -> Machine:
    """Return the host that this program runs on. NVML has no call for either; `nvidia-smi` does both."""
    found = tuple(roots)
    return Machine(boot_id=boot_id(), reset=partial(_reset, found), make_nodes=partial(_run, found, (), _NODES_SECONDS))


def _reset(roots: tuple[Path, ...], pci_bus_id: str) -> str | None:
    return _run(roots, ("--gpu-reset", "-i", pci_bus_id), _RESET_SECONDS)


def _run(roots: tuple[Path, ...], arguments: tuple[str, ...], timeout_seconds: float) -> str | None:
    """Run nvidia-smi. Without arguments it lists the GPUs and opens each instance; as root, NVML creates the nodes for it."""
    # Searched at every call: the driver's container may have started since.
    program = find("nvidia-smi", roots)
    return "there is no nvidia-smi on the host" if program is None else program.run(arguments, timeout_seconds)
