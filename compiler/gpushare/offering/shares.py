"""How the devices of a pool's node are offered: resource names, replicas and counts. Pure; makes no findings."""

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from gpushare import vendors
from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, DeviceProfile, memory_mib
from gpushare.intent.types import Layout, Pool
from gpushare.offering import backends, caps, modes
from gpushare_node.contract.struct import Struct


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
    return card.id, name, kind.shared, caps.cap_mib(pool, card, kind.profile, kind.replicas)


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
