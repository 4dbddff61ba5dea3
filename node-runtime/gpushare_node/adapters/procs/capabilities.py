"""Capabilities: what this program may do to other processes, as the kernel tells it at the start."""

from pathlib import Path

from gpushare_node.core.structs import Struct

_KILL = 5
"""CAP_KILL's bit: capability.h."""

_UNCONFINED = ("unconfined", "kernel", "")
_FREE_TYPES = frozenset({"spc_t", "unconfined_t", "unconfined_service_t"})
"""SELinux types that may signal processes of every type."""


class Capabilities(Struct):
    """`may_kill` None: not known. `profile`: the security module's profile that confines this program; None: nothing does."""

    may_kill: bool | None = None
    profile: str | None = None


UNKNOWN_RIGHTS = Capabilities()


def own_rights(root: Path = Path("/proc")) -> Capabilities:
    """Those of this process. Where no security module is loaded its file is empty or cannot be read."""
    return Capabilities(may_kill=_may_kill(_read(root / "self/status")), profile=_profile(_read(root / "self/attr/current")))


def _may_kill(status: str) -> bool | None:
    for line in status.splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> _KILL & 1)
    return None


def _profile(text: str) -> str | None:
    """AppArmor writes `name (mode)`, SELinux `user:role:type:level`. A profile that only complains refuses nothing."""
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
