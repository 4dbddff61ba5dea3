"""Memory arithmetic: how much of a device one container may use, and how far it may exceed that.

Pure integers in bytes, rounded once, at the end. Knows pools and cards, neither layouts nor findings.
"""

from gpushare.core.units import MIB
from gpushare.facts.catalog.cards import Card, DeviceProfile, memory_mib, usable_bytes
from gpushare.intent.types import CapValue, CapWord, Pool
from gpushare.offering import modes


def even_mib(pool: Pool, card: Card, profile: DeviceProfile | None, replicas: int) -> int | None:
    """Return the `even` cap in MiB.

    Under MPS it is what the plugin's daemon gives each client, total memory over replicas: the daemon knows no reserve
    (k8s-device-plugin, cmd/mps-control-daemon/mps/device.go).
    """
    memory = memory_mib(card, profile)
    if memory is None:
        return None
    if modes.of(pool).has_daemon:
        return memory // replicas
    usable = usable_bytes(memory, pool.memory.reserve)
    return None if usable is None else max(usable, 0) // (replicas * MIB)


def wanted_cap(pool: Pool, profile: DeviceProfile | None) -> CapValue:
    """Return the cap that the pool requests on a shared device, not yet resolved to a number: bytes, `even` or `none`."""
    cap = pool.memory.cap
    if isinstance(cap, tuple):
        return dict(cap).get(profile.name, CapWord.EVEN) if profile else CapWord.EVEN
    return CapWord.EVEN if cap is None else cap


def cap_mib(pool: Pool, card: Card, profile: DeviceProfile | None, replicas: int) -> int | None:
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


def claim_cap_mib(cap_mib: int, replicas: int, asked_mib: int, memory_mib: int) -> int:
    """Return what a claim may use that asks for some of a device's memory: as much of it as the caps of all shares are.

    The node runtime computes the same from what the scheduler gave the claim.
    """
    return asked_mib * cap_mib * replicas // memory_mib


def provided_bytes(pool: Pool, card: Card, profile: DeviceProfile | None, replicas: int) -> int | None:
    """Return what a container with one share of a device may use: the cap, or the usable memory of an unshared device.

    None if the device's memory is not known, or if the device is shared without a cap: nothing is promised to a container then.
    """
    if replicas > 1:
        cap = cap_mib(pool, card, profile, replicas)
        return None if cap is None else cap * MIB
    usable = usable_bytes(memory_mib(card, profile), pool.memory.reserve)
    return None if usable is None else max(usable, 0)


def tolerance_mib(pool: Pool, cap_mib: int) -> int:
    """Return how far a container may exceed its cap, in MiB, rounded up: enforcement is never stricter than the intent.

    Nor than the limit that the mode's own daemon sets: a client at that limit is within its cap.
    """
    asked = -(-pool.enforcement.tolerance.of(cap_mib * MIB) // MIB)
    return max(asked, modes.of(pool).uncounted_mib)


def shares_for(memory_bytes: int, cap_mib: int) -> int:
    """Return how many shares of `cap_mib` fit into a memory quota of `memory_bytes`."""
    return memory_bytes // (cap_mib * MIB)
