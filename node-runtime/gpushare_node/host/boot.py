"""The machine's boot: which one this is, and how to ask for the next. Decides nothing."""

from collections.abc import Iterable
from pathlib import Path

from gpushare_node.host.programs import ROOTS, find

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

_ASK_SECONDS = 60.0


def boot_id() -> str:
    """The kernel's id of this boot; it is the same in every container."""
    return _BOOT_ID.read_text(encoding="ascii").strip()


def reboot(roots: Iterable[Path] = ROOTS) -> str | None:
    """Ask the host's init system for an orderly reboot. None if it agreed, else a sentence."""
    program = find("systemctl", roots)
    return "there is no systemctl on the host" if program is None else program.run(("reboot",), _ASK_SECONDS)
