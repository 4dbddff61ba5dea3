"""Operations on a GPU that the driver has no call for: a reset, and the device nodes of new MIG instances. Decides nothing."""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from pathlib import Path

from gpushare_node.adapters.host.boot import boot_id
from gpushare_node.adapters.host.programs import ROOTS, find
from gpushare_node.contract.policy import Vendor
from gpushare_node.contract.struct import Struct
from gpushare_node.vendors import of

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
