"""Capabilities: what this program may do to other processes, as the kernel reports it at the start."""

from pathlib import Path

from gpushare_node.contract.struct import Struct

_KILL = 5
"""CAP_KILL's bit: capability.h."""

_UNCONFINED = ("unconfined", "kernel", "")
_FREE_TYPES = frozenset({"spc_t", "unconfined_t", "unconfined_service_t"})
"""SELinux types that may signal processes of every type."""


class Capabilities(Struct):
    """`may_kill` None: unknown. `profile`: the security module's profile that confines this program; None: unconfined."""

    may_kill: bool | None = None
    profile: str | None = None


UNKNOWN_RIGHTS = Capabilities()


def own_rights(root: Path = Path("/proc")) -> Capabilities:
    """Return the capabilities of this process. Without a security module, the file of its profile is empty or unreadable."""
    return Capabilities(may_kill=_may_kill(_read(root / "self/status")), profile=_profile(_read(root / "self/attr/current")))


def _may_kill(status: str) -> bool | None:
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _KILL & 1)
    return None


def _profile(text: str) -> str | None:
    """Return the confining profile: AppArmor `name (mode)`, SELinux `user:role:type:level`. Complain mode denies nothing."""
    name, _, mode = text.partition(" ")
    if name in _UNCONFINED or mode == "(complain)":
        return None
    parts = name.split(":")
    return None if len(parts) >= 3 and parts[2] in _FREE_TYPES else text


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="backslashreplace").strip("\0\n ")
    except OSError:
        return ""
