"""The memory of a card's devices, and how much of it containers may use.

A memory of None (or the 0 that unified-memory boards report) is unknown, and whatever depends on it is None.
"""

from gpushare.catalog.cards import Card, DeviceProfile
from gpushare.core.units import MIB, Share

DEFAULT_RESERVE = Share(percent_hundredths=300)
"""What the driver and its contexts need of a device before any tenant: 3 %, but never less than `MIN_RESERVE_BYTES`."""

MIN_RESERVE_BYTES = 256 * MIB


def reserve_bytes(memory_mib: int, reserve: Share | None) -> int:
    """Return how much of a device with `memory_mib` is reserved, in whole bytes, rounded up. `reserve` None: the default."""
    whole = memory_mib * MIB
    return max(DEFAULT_RESERVE.of(whole), MIN_RESERVE_BYTES) if reserve is None else reserve.of(whole)


def usable_bytes(memory_mib: int | None, reserve: Share | None) -> int | None:
    """Return what all containers of a device may use together, in whole bytes; zero or less if the reserve takes it all."""
    return memory_mib * MIB - reserve_bytes(memory_mib, reserve) if memory_mib else None


def memory_mib(card: Card, profile: DeviceProfile | None) -> int | None:
    """Return the smallest catalogued memory of a whole card or of a part of one; None if it was never measured."""
    return (card.memory_mib if profile is None else profile.memory_mib) or None
