"""How the devices of a pool's node are offered: layouts per GPU, resource names, replicas and counts.

Pure; makes no findings: if an intent cannot be resolved (an index covered twice, a profile that the card lacks) the layouts
are None, and the rules report why. Names follow k8s-device-plugin v0.20 (internal/rm/rm.go): `+` becomes `.`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import chain
from typing import assert_never

from gpushare import mig
from gpushare.catalog.cards import Card, Geometry, MigProfile
from gpushare.core.record import Record
from gpushare.intent.types import Exclusive, Layout, LayoutGroup, Mig, MigStrategy, Mps, Pool, Sharing, TimeSlicing
from gpushare.mig.layouts import board as layout_board
from gpushare.sharing import caps
from gpushare.vendors.nvidia import NVIDIA

WHOLE_GPU = NVIDIA.whole_gpu
SHARED_SUFFIX = ".shared"


class DeviceClass(Record):
    """Devices of a node that are offered in the same way: whole GPUs (`profile` None) or the instances of one profile.

    `base` is the resource's name before sharing renames it, as device-plugin configs use it. `replicas` is 1 if nothing is
    shared. `devices` counts GPUs or instances of one node.
    """

    profile: MigProfile | None
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


Meaning = tuple[str, str | None, bool, int | None]
"""What a pod gets that requests a resource: the card, the profile (None: a whole GPU), whether it is shared, the cap in MiB."""

Offer = frozenset[tuple[str, Meaning]]
"""The (resource, meaning) pairs of one pool."""


def meaning(pool: Pool, card: Card, kind: DeviceClass) -> Meaning:
    """Return what a resource of the pool means."""
    name = kind.profile.name if kind.profile else None
    return card.id, name, kind.shared, caps.cap_mib(pool, card, kind.profile, kind.replicas)


def ambiguous(offers: Iterable[Offer]) -> frozenset[str]:
    """Return the resources that mean different things in different pools: a pod that requests one must name the pool.

    While a plugin starts, it briefly offers whole GPUs, also on nodes that share them.
    """
    meanings: dict[str, set[Meaning]] = {}
    brief = set()
    for offer in offers:
        for resource, each in offer:
            meanings.setdefault(resource, set()).add(each)
        if all(resource != WHOLE_GPU for resource, _ in offer):
            brief.add(WHOLE_GPU)
    return frozenset(brief.union(name for name, each in meanings.items() if len(each) > 1))


def profiles_by_name(card: Card) -> Mapping[str, MigProfile]:
    """Return the card's MIG profiles by name; empty if it has none."""
    return {profile.name: profile for profile in card.mig.profiles} if card.mig else {}


def layouts(pool: Pool, card: Card, pinned: Layout | None = None) -> tuple[Layout, ...] | None:
    """Return the layout of each GPU index of a node, in canonical order; the empty layout is a whole GPU.

    `pinned` is what the pool's goal was resolved to before and takes precedence over resolving it again. None if the goal
    cannot be reached, an index is not covered exactly once or the card lacks a profile.
    """
    if not isinstance(pool.sharing, Mig):
        return ((),) * pool.gpus_per_node
    if card.mig is None:
        return None
    per_gpu = _per_gpu(pool, card.mig, pool.sharing, pinned)
    if per_gpu is None:
        return None
    known = profiles_by_name(card)
    if any(name not in known for name, _ in chain.from_iterable(set(per_gpu))):
        return None
    ordered = {layout: canonical(layout, card.mig) for layout in set(per_gpu)}
    return tuple(ordered[layout] for layout in per_gpu)


def _per_gpu(pool: Pool, geometry: Geometry, sharing: Mig, pinned: Layout | None) -> tuple[Layout, ...] | None:
    if not isinstance(sharing.wanted, tuple):
        usable = partial(_usable_bytes, pool=pool)
        layout = pinned or mig.resolve_goal(geometry, sharing.wanted, usable)
        return (layout,) * pool.gpus_per_node if layout else None
    groups, alike = split_wanted(sharing.wanted)
    if not groups:
        return (alike,) * pool.gpus_per_node
    by_index = {index: group.layout for group in groups for index in group.gpus}
    if Counter(index for group in groups for index in group.gpus) != Counter(range(pool.gpus_per_node)):
        return None
    return tuple(by_index[index] for index in range(pool.gpus_per_node))


def _usable_bytes(profile: MigProfile, pool: Pool) -> int | None:
    return caps.usable_bytes(profile.memory_mib, pool.memory.reserve)


def split_wanted(wanted: Layout | tuple[LayoutGroup, ...]) -> tuple[tuple[LayoutGroup, ...], Layout]:
    """Return a MIG setting without goals as (groups by index, layout of all GPUs): one of the two is empty."""
    groups = tuple(entry for entry in wanted if isinstance(entry, LayoutGroup))
    return groups, tuple(entry for entry in wanted if not isinstance(entry, LayoutGroup))


def canonical(layout: Layout, geometry: Geometry) -> Layout:
    """Return the layout in the solver's order, larger profiles first: equal layouts become equal values."""
    board = layout_board(geometry)
    return board.layout(board.counts(layout))


def kinds(pool: Pool, card: Card, per_gpu: tuple[Layout, ...]) -> tuple[DeviceClass, ...]:
    """Return the distinct ways in which a node's devices are offered: instances by size, whole GPUs last."""
    known = profiles_by_name(card)
    counts: Counter[str | None] = Counter()
    for layout, gpus in Counter(per_gpu).items():
        counts.update({name: count * gpus for name, count in layout} if layout else {None: gpus})
    instances = tuple((name, count) for name, count in counts.items() if name is not None)
    in_order = canonical(instances, card.mig) if card.mig else ()
    whole = ((None, counts[None]),) if counts[None] else ()
    return tuple(_kind(pool, card, known[name] if name else None, count) for name, count in (*in_order, *whole))


def _kind(pool: Pool, card: Card, profile: MigProfile | None, devices: int) -> DeviceClass:
    base, replicas = _base_name(pool.sharing, profile), replicas_of(pool.sharing, profile)
    renamed = replicas > 1 and not isinstance(pool.sharing, Exclusive) and pool.sharing.rename
    return DeviceClass(
        profile=profile,
        base=base,
        resource=base + SHARED_SUFFIX if renamed else base,
        replicas=replicas,
        memory_mib=caps.memory_mib(card, profile),
        devices=devices,
    )


def _base_name(sharing: Sharing, profile: MigProfile | None) -> str:
    if profile is None or (isinstance(sharing, Mig) and sharing.strategy is MigStrategy.SINGLE):
        return WHOLE_GPU
    return f"{NVIDIA.partitions}{profile.resource_suffix}"


def replicas_of(sharing: Sharing, profile: MigProfile | None) -> int:
    """Return how many shares a device is divided into. In a MIG pool only instances are shared, never its whole GPUs."""
    match sharing:
        case Exclusive():
            return 1
        case TimeSlicing(replicas=replicas) | Mps(replicas=replicas):
            return replicas
        case Mig(replicas=replicas):
            if profile is None:
                return 1
            return replicas if isinstance(replicas, int) else dict(replicas).get(profile.name, 1)
        case _:
            assert_never(sharing)


def find(offered: tuple[DeviceClass, ...], name: str) -> DeviceClass | None:
    """Return the kind that `name` refers to: a profile, `gpu` for whole GPUs, or the resource with or without its prefix."""
    short = NVIDIA.short(name)
    for kind in offered:
        called = {kind.base, kind.resource} | ({kind.profile.name, kind.profile.resource_suffix} if kind.profile else {"gpu"})
        if name in called or f"{NVIDIA.prefix}{short}" in called:
            return kind
    return None
