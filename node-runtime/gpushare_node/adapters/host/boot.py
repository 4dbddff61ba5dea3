"""The machine's boot: which one this is. Decides nothing."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """The kernel's id of this boot; it is the same in every container."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
