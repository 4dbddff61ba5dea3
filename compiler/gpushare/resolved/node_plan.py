"""What one node of a pool resolves to: its GPUs, the devices they offer, and the two upstream configs that describe them.

Owns the per-node types of the Plan and their computation from an Intent that passed the rules.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Card, PartitionMode
from gpushare.facts.mig import PlacedInstance
from gpushare.intent.types import Layout, Pool
from gpushare.offering import backends, modes, shares
from gpushare.offering.partitioners import config_manager, mig_parted
from gpushare.offering.partitioners.config_manager import ManagerConfig
from gpushare.offering.partitioners.mig_parted import MigConfig
from gpushare.offering.shares import ShareKind
from gpushare_node.contract.struct import Struct


class GpuLayout(Struct):
    """What one GPU of a node resolves to: MIG instances, AMD's `partition`, or neither, a whole GPU.

    With MIG but without instances, these are made for each claim.
    """

    index: int
    mig_enabled: bool
    instances: tuple[PlacedInstance, ...]
    partition: PartitionMode | None = None


class DevicePlan(Struct):
    """One device that a back end will offer: a whole GPU (`profile` None), a MIG instance, or a place where one can be made.

    `memory_mib` is the smallest catalogued memory, None if unknown; `cap_mib` is what one container may use, None for no cap.
    """

    gpu: int
    resource: str
    profile: str | None
    start: int
    size: int
    memory_mib: int | None
    replicas: int
    cap_mib: int | None


class SharingProfile(Struct):
    """One device-plugin config. `key` is `<mode>-<8 hex of the content>`; the ConfigMap has `<key>-a` and `<key>-b`."""

    key: str
    config: Mapping[str, Any]


class NodeShape(Struct):
    """One node, resolved. `kinds` are what `devices` are offered as; `layouts` are in the order of the GPU indexes.

    `samples` are the first device of each profile: every other device differs from one of them only in its placement.
    """

    layouts: tuple[Layout, ...]
    kinds: tuple[ShareKind, ...]
    gpus: tuple[GpuLayout, ...]
    devices: tuple[DevicePlan, ...]
    samples: tuple[DevicePlan, ...]
    profile: SharingProfile
    mig_config: MigConfig | None
    manager_config: ManagerConfig | None


def resolve(pool: Pool, card: Card, pinned: Layout | None) -> NodeShape:
    """Return the shape of the pool's nodes; `pinned` is the layout that the lock file pins for the pool's goal.

    A ValueError is a bug: the rules accepted something that cannot be resolved.
    """
    layouts = modes.of(pool).layouts(card, pinned)
    if layouts is None:
        raise ValueError(f"pool {pool.name}: no layout")
    kinds = shares.kinds(pool, card, layouts)
    if modes.of(pool).is_on_demand and card.mig:
        free = mig.places(card.mig, [name for name, _ in layouts[0]])
        gpus = tuple(GpuLayout(index=index, mig_enabled=True, instances=()) for index in range(len(layouts)))
    else:
        free = ()
        placed = {layout: _place(card, layout) for layout in set(layouts)}
        gpus = tuple(_gpu(card, index, layout, placed[layout]) for index, layout in enumerate(layouts))
    devices = _devices(pool, card, gpus, kinds, free)
    key, config = backends.of(pool, card).profile({kind.base: kind.replicas for kind in kinds if kind.shared})
    return NodeShape(
        layouts=layouts,
        kinds=kinds,
        gpus=gpus,
        devices=devices,
        samples=_samples(devices),
        profile=SharingProfile(key=key, config=config),
        mig_config=mig_parted.config(pool, card, layouts),
        manager_config=config_manager.config(card, layouts),
    )


def _gpu(card: Card, index: int, layout: Layout, placed: tuple[PlacedInstance, ...]) -> GpuLayout:
    partition = next((mode for mode in card.partition_modes if layout and mode.name == layout[0][0]), None)
    return GpuLayout(index=index, mig_enabled=bool(placed), instances=placed, partition=partition)


def _place(card: Card, layout: Layout) -> tuple[PlacedInstance, ...]:
    if not layout or card.mig is None:
        return ()
    placed = mig.place(card.mig, layout)
    if placed is None:
        raise ValueError(f"layout {dict(layout)} does not fit {card.id}")
    return placed


def _devices(
    pool: Pool, card: Card, gpus: tuple[GpuLayout, ...], kinds: tuple[ShareKind, ...], free: tuple[PlacedInstance, ...]
) -> tuple[DevicePlan, ...]:
    """Return every device of a node, sorted by GPU and start: also all `free` places of GPUs with MIG."""
    offered = {kind.profile.name if kind.profile else None: kind for kind in kinds}
    caps_mib = {name: shares.cap_mib(pool, card, kind.profile, kind.replicas) for name, kind in offered.items()}
    whole = card.mig.units if card.mig else 1

    def device(gpu: int, name: str | None, start: int, size: int) -> DevicePlan:
        kind = offered[name]
        return DevicePlan(
            gpu=gpu,
            resource=kind.resource,
            profile=name,
            start=start,
            size=size,
            memory_mib=kind.memory_mib,
            replicas=kind.replicas,
            cap_mib=caps_mib[name],
        )

    devices: list[DevicePlan] = []
    for gpu in gpus:
        if gpu.partition:
            devices += [device(gpu.index, gpu.partition.name, start, 1) for start in range(gpu.partition.partitions)]
        elif gpu.mig_enabled:
            placed = sorted(gpu.instances or free, key=lambda instance: instance.start)
            devices += [device(gpu.index, item.profile.name, item.start, item.size) for item in placed]
        else:
            devices.append(device(gpu.index, None, 0, whole))
    return tuple(devices)


def _samples(devices: tuple[DevicePlan, ...]) -> tuple[DevicePlan, ...]:
    first: dict[str | None, DevicePlan] = {}
    for device in devices:
        first.setdefault(device.profile, device)
    return tuple(first.values())
