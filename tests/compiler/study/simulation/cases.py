"""Small clusters and workloads, at random: few of everything, so that pods meet."""

import random
from collections.abc import Iterator

from gpushare.core.prices import Price
from gpushare.core.units import MIB
from gpushare.intent.types import SharePlacement
from gpushare.study.simulation.supply import DeviceSupply, PoolSupply, Supply
from gpushare.study.workload.requests import PodRequest, Workload

NAMESPACES = ("atlas", "cms", "guests")
CARDS = ("t4", "a100")
RESOURCES = ("gpu", "gpu.shared", "mig-1g", "mig-2g")


def supply(chance: random.Random) -> Supply:
    return Supply(
        pools=tuple(_pool(chance, name) for name in ("p1", "p2", "p3")[: chance.randint(1, 3)]),
        quotas={(name, chance.choice(RESOURCES)): chance.randint(0, 4) for name in NAMESPACES if chance.random() < 0.3},
        ambiguous=frozenset(name for name in RESOURCES if chance.random() < 0.15),
        denies=chance.random() < 0.7,
        assigns=chance.random() < 0.5,
    )


def workload(chance: random.Random, supply: Supply) -> Workload:
    """Most pods ask for what there is."""
    offered = tuple({device.resource: None for pool in supply.pools for device in pool.devices})
    number = chance.choice((0, 1, 6, 10, 16, 24))
    return Workload(source="random", pods=tuple(_pod(chance, f"pod-{index}", offered) for index in range(number)))


def _pool(chance: random.Random, name: str) -> PoolSupply:
    gpus, memory = chance.choice((1, 1, 2, 3)), chance.choice((8, 8, 12, 12, None))
    return PoolSupply(
        name=name,
        card=chance.choice((*CARDS, "t4")),
        nodes=chance.choice((None, 0, 1, 1, 1, 2, 2, 3)),
        gpus_per_node=gpus,
        gpu_mib=memory,
        devices=tuple(_devices(chance, gpus, memory)),
        placement=chance.choice(list(SharePlacement)),
        namespaces=frozenset(name for name in NAMESPACES if chance.random() < 0.6) if chance.random() < 0.3 else frozenset(),
        is_default=chance.random() < 0.4,
        price=Price(per_hour=chance.choice((0.5, 3.0))) if chance.random() < 0.8 else None,
    )


def _devices(chance: random.Random, gpus: int, memory: int | None) -> Iterator[DeviceSupply]:
    slots = chance.choice((1, 1, 2, 3))
    layouts: list[tuple[tuple[str, int, int, int], ...]] = [
        (("gpu" if slots == 1 or chance.random() < 0.3 else "gpu.shared", slots, 1, 1),),
        (("mig-1g", slots, 1, 4), ("mig-2g", 1, 2, 4), ("mig-1g", slots, 1, 4)),
        (("mig-2g", slots, 2, 4), ("mig-2g", slots, 2, 4)),
    ]
    chosen = chance.choice(layouts)
    for gpu in range(gpus):
        for resource, times, part, of in chosen if gpu or chance.random() < 0.8 else ((("gpu", 1, 1, 1)),):
            yield DeviceSupply(
                gpu=gpu,
                resource=resource,
                slots=times,
                provides_bytes=None if memory is None else memory * MIB * part // (of * times),
                milli=1000 * part // (of * times),
                is_whole=part == of and times == 1,
            )


def _pod(chance: random.Random, name: str, offered: tuple[str, ...]) -> PodRequest:
    asked = chance.choice(("memory", "milli", "gpus", "resource"))
    return PodRequest(
        namespace=chance.choice(NAMESPACES),
        name=name,
        memory_bytes=chance.choice((1, 2, 2, 3, 4, 8, 13)) * MIB if asked == "memory" else None,
        milli=chance.choice((100, 125, 250, 333, 334, 500, 1000)) if asked == "milli" else None,
        gpus=chance.choice((1, 1, 2, 3)) if asked == "gpus" else None,
        resource=chance.choice((*offered, *offered, *offered, *RESOURCES, "fpga")) if asked == "resource" else None,
        count=chance.choice((1, 1, 1, 2, 3)) if asked == "resource" else 1,
        per_container=chance.choice((None, 1)) if asked == "resource" else None,
        pool=chance.choice((*[""] * 12, "p1", "p2", "p3", "p4")),
        cards=chance.choice((*[()] * 8, ("t4",), CARDS)),
        arrival=chance.randint(0, 6),
        duration=chance.choice((None, 0, 1, 2, 3, 5, 8)),
    )
