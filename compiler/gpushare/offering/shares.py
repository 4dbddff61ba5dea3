"""How the devices of a pool's node are offered: resource names, replicas and counts, and how much of a device one may use.

Pure; makes no findings. Memory is in integers of bytes, rounded once, at the end.
"""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from gpushare import vendors
from gpushare.core.units import MIB
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, DeviceProfile, memory_mib, usable_bytes
from gpushare.intent.types import CapValue, CapWord, Layout, Pool
from gpushare.offering import backends, modes
from gpushare_node.contract.struct import Struct


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


class ShareKind(Struct):
    """Devices of a node that are offered in the same way: whole GPUs (`profile` None) or the parts of one profile.

    `base` is the resource's name before sharing renames it, as device-plugin configs use it. `replicas` is 1 if nothing is
    shared. `devices` counts GPUs or instances of one node.
    """

    profile: DeviceProfile | None
    base: str
    resource: str
    replicas: int
    memory_mib: int | None
    devices: int

    @property
    def per_node(self) -> int:
        """How many of the resource a node's `allocatable` shows because of these devices."""
        return self.devices * self.replicas

    @property
    def shared(self) -> bool:
        """Whether several containers use one device."""
        return self.replicas > 1


ShareIdentity = tuple[str, str | None, bool, int | None]
"""What a pod gets that requests a resource: the card, the profile (None: a whole GPU), whether it is shared, the cap in MiB."""

Offer = frozenset[tuple[str, ShareIdentity]]
"""The (resource, meaning) pairs of one pool."""


def identity(pool: Pool, card: Card, kind: ShareKind) -> ShareIdentity:
    """Return what a resource of the pool means."""
    name = kind.profile.name if kind.profile else None
    return card.id, name, kind.shared, cap_mib(pool, card, kind.profile, kind.replicas)


def ambiguous(offers: Iterable[Offer], lasting: Iterable[Offer] = ()) -> frozenset[str]:
    """Return the resources that mean different things in different pools: a pod that requests one must name the pool.

    While a plugin starts, it briefly offers whole GPUs, also on nodes that share them; those of `lasting` have no plugin.
    """
    meanings: dict[str, set[ShareIdentity]] = {}
    transient = set()
    for offer in offers:
        for resource, each in offer:
            meanings.setdefault(resource, set()).add(each)
        offered = {resource for resource, _ in offer}
        transient |= {vendors.of_resources(offered).whole_gpu} - offered
    for resource, each in chain.from_iterable(lasting):
        meanings.setdefault(resource, set()).add(each)
    return frozenset(transient.union(name for name, each in meanings.items() if len(each) > 1))


def kinds(pool: Pool, card: Card, per_gpu: tuple[Layout, ...]) -> tuple[ShareKind, ...]:
    """Return the distinct ways in which a node's devices are offered: instances by size, whole GPUs last."""
    counts: Counter[str | None] = Counter()
    for layout, gpus in Counter(per_gpu).items():
        counts.update({name: count * gpus for name, count in layout} if layout else {None: gpus})
    instances = tuple((name, count) for name, count in counts.items() if name is not None)
    in_order = mig.canonical(card.mig, instances) if card.mig else instances
    whole = ((None, counts[None]),) if counts[None] else ()
    return tuple(_kind(pool, card, card.device_profiles[name] if name else None, count) for name, count in (*in_order, *whole))


def _kind(pool: Pool, card: Card, profile: DeviceProfile | None, devices: int) -> ShareKind:
    replicas = modes.of(pool).replicas_of(profile)
    base, resource = backends.of(pool, card).names(profile, is_shared=replicas > 1)
    return ShareKind(
        profile=profile,
        base=base,
        resource=resource,
        replicas=replicas,
        memory_mib=memory_mib(card, profile),
        devices=devices,
    )


def find(offered: tuple[ShareKind, ...], name: str) -> ShareKind | None:
    """Return the kind that `name` refers to: a profile, `gpu` for whole GPUs, or the resource with or without its prefix."""
    for kind in offered:
        called = {kind.base, kind.resource} | ({kind.profile.name, kind.profile.resource_suffix} if kind.profile else {"gpu"})
        if name in called.union(map(vendors.short, called)):
            return kind
    return None
