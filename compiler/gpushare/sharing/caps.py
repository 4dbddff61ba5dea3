"""Memory arithmetic: what is usable on a device, how much of it one container may use, and how far it may exceed that.

Pure integers in bytes, rounded once, at the end. Knows pools and cards, neither layouts nor findings. A memory of None
(or the 0 that unified-memory boards report) is unknown, and whatever depends on it is None.
"""

from gpushare.catalog.cards import Card, MigProfile
from gpushare.core.units import MIB, Share
from gpushare.intent.types import CapValue, CapWord, Mode, Pool

DEFAULT_RESERVE = Share(percent_hundredths=300)
"""What the driver and its contexts need of a device before any tenant: 3 %, but never less than `MIN_RESERVE_BYTES`."""

MIN_RESERVE_BYTES = 256 * MIB

CLIENT_LIMITS_FROM = (7, 0)
"""Compute capability from which an MPS client can have a memory limit (Volta)."""


def has_mps_shares(card: Card) -> bool:
    """Whether the device plugin runs MPS on the card, and MPS holds each client to its share there."""
    return card.mps_supported and card.compute_capability >= CLIENT_LIMITS_FROM


def reserve_bytes(memory_mib: int, reserve: Share | None) -> int:
    """Return how much of a device with `memory_mib` is reserved, in whole bytes, rounded up. `reserve` None: the default."""
    whole = memory_mib * MIB
    return max(DEFAULT_RESERVE.of(whole), MIN_RESERVE_BYTES) if reserve is None else reserve.of(whole)


def usable_bytes(memory_mib: int | None, reserve: Share | None) -> int | None:
    """Return what all containers of a device may use together, in whole bytes; zero or less if the reserve takes it all."""
    return memory_mib * MIB - reserve_bytes(memory_mib, reserve) if memory_mib else None


def memory_mib(card: Card, profile: MigProfile | None) -> int | None:
    """Return the smallest catalogued memory of a whole card or of an instance; None if it was never measured."""
    return (card.memory_mib if profile is None else profile.memory_mib) or None


def even_mib(pool: Pool, card: Card, profile: MigProfile | None, replicas: int) -> int | None:
    """Return the `even` cap in MiB.

    Under MPS it is what the plugin's daemon gives each client, total memory over replicas: the daemon knows no reserve
    (k8s-device-plugin, cmd/mps-control-daemon/mps/device.go).
    """
    memory = memory_mib(card, profile)
    if memory is None:
        return None
    if pool.mode is Mode.MPS:
        return memory // replicas
    usable = usable_bytes(memory, pool.memory.reserve)
    return None if usable is None else max(usable, 0) // (replicas * MIB)


def wanted_cap(pool: Pool, profile: MigProfile | None) -> CapValue:
    """Return the cap that the pool requests on a shared device, not yet resolved to a number: bytes, `even` or `none`."""
    cap = pool.memory.cap
    if isinstance(cap, tuple):
        return dict(cap).get(profile.name, CapWord.EVEN) if profile else CapWord.EVEN
    return CapWord.EVEN if cap is None else cap


def cap_mib(pool: Pool, card: Card, profile: MigProfile | None, replicas: int) -> int | None:
    """Return what one container may use of one device, in MiB; None for no cap, as on every unshared device.

    A quantity is rounded down: use is counted in whole MiB, and a sum of caps must never exceed what was requested.
    """
    if replicas < 2:
        return None
    match wanted_cap(pool, profile):
        case CapWord.EVEN:
            return even_mib(pool, card, profile, replicas)
        case CapWord.NONE:
            return None
        case int(size):
            return size // MIB


def tolerance_mib(cap_mib: int, tolerance: Share) -> int:
    """Return how far a container may exceed its cap, in MiB, rounded up: enforcement is never stricter than the intent."""
    return -(-tolerance.of(cap_mib * MIB) // MIB)


def shares_for(memory_bytes: int, cap_mib: int) -> int:
    """Return how many shares of `cap_mib` fit into a memory quota of `memory_bytes`."""
    return memory_bytes // (cap_mib * MIB)
