"""The id of the host's current boot. Decides nothing."""

from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def boot_id() -> str:
    """Return the kernel's id of this boot; it is the same in every container."""
    return _BOOT_ID.read_text(encoding="ascii").strip()
