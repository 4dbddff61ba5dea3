"""What a plan offers is what its compile gives: shares, memory, parts, quotas, and what admission knows."""

from typing import Any

import pytest

from gpushare.core.prices import Price
from gpushare.core.units import MIB
from gpushare.facts.catalog import cards
from gpushare.intent.types import (
    Admission,
    CapWord,
    Exclusive,
    LayoutGroup,
    Memory,
    Mig,
    MigStrategy,
    Mps,
    NodeSelector,
    Quota,
    SharePlacement,
    Sharing,
    TimeSlicing,
)
from gpushare.study.simulation import engine, supply
from gpushare.study.simulation.supply import DeviceSupply
from gpushare.study.sizing import size
from gpushare.study.workload.requests import PodRequest, Workload
from gpushare_node.contract.tenancy import AdmissionMode
from tests.compiler.resolved.builders import plan, pool
from tests.compiler.study.test_sizing import demanded
from tests.support import scale

H100 = "h100-sxm5-80gb"


def devices(sharing: Sharing, card: str = "t4", **given: Any) -> tuple[DeviceSupply, ...]:
    return supply.of(plan(pool(sharing, card, gpus=1, **given)), {}).pools[0].devices


@pytest.mark.parametrize(
    ("sharing", "memory", "provides_mib", "milli"),
    [
        (Exclusive(), Memory(), 14899, 1000),
        (TimeSlicing(replicas=4), Memory(), 3724, 250),
        (TimeSlicing(replicas=3), Memory(), 4966, 333),
        (TimeSlicing(replicas=1024), Memory(), 14, 0),
        (TimeSlicing(replicas=4), Memory(cap=1862 * MIB), 1862, 125),
        (TimeSlicing(replicas=4), Memory(cap=8000 * MIB, oversubscribe_percent=300), 8000, 250),
        (TimeSlicing(replicas=4), Memory(cap=CapWord.NONE), None, 250),
        (Mps(replicas=4), Memory(), 3840, 250),
    ],
)
def test_a_share_provides_its_cap_or_the_usable_memory(
    sharing: Sharing, memory: Memory, provides_mib: int | None, milli: int
) -> None:
    (device,) = devices(sharing, memory=memory)
    found_mib = None if device.provides_bytes is None else device.provides_bytes // MIB
    assert (found_mib, device.milli) == (provides_mib, milli)
    assert device.is_whole == (sharing.mode == "exclusive")
    assert device.resource == ("nvidia.com/gpu" if device.is_whole else "nvidia.com/gpu.shared")


def test_an_instance_is_the_smaller_of_its_parts_of_memory_and_compute() -> None:
    found = devices(Mig(wanted=(("3g.40gb", 1), ("1g.20gb", 1), ("1g.10gb", 1)), replicas=(("1g.10gb", 2),)), H100)
    assert {(one.resource, one.slots): one.milli for one in found} == {
        ("nvidia.com/mig-3g.40gb", 1): 428,
        ("nvidia.com/mig-1g.20gb", 1): 142,
        ("nvidia.com/mig-1g.10gb.shared", 2): 62,
    }
    assert not any(one.is_whole for one in found)


def test_a_whole_gpu_beside_instances_is_whole_and_an_instance_of_the_size_of_a_gpu_is_not() -> None:
    groups = (LayoutGroup(gpus=(0,), layout=(("7g.80gb", 1),)), LayoutGroup(gpus=(1,), layout=()))
    found = supply.of(plan(pool(Mig(wanted=groups), H100, gpus=2)), {}).pools[0].devices
    assert [(one.resource, one.milli, one.is_whole) for one in found] == [
        ("nvidia.com/mig-7g.80gb", 1000, False),
        ("nvidia.com/gpu", 1000, True),
    ]
    single = devices(Mig(wanted=(("7g.80gb", 1),), strategy=MigStrategy.SINGLE), H100)
    assert [(one.resource, one.is_whole) for one in single] == [("nvidia.com/gpu", False)]


def test_a_pool_says_who_may_use_it_and_what_it_costs() -> None:
    named = pool(TimeSlicing(replicas=4, placement=SharePlacement.PACK), "t4", "named", namespaces=("atlas",), is_default=True)
    selected = pool(Exclusive(), "t4", "selected", nodes=NodeSelector(match_labels=(("a", "b"),)))
    quota = Quota(namespace="atlas", pool="named", memory_bytes=8000 * MIB)
    price = Price(per_hour=0.35, currency="EUR")
    found = supply.of(plan(named, selected, quotas=(quota,), kubernetes=(1, 36)), {"named": price})
    first, second = found.pools
    assert (first.name, first.card, first.nodes, first.gpus_per_node, first.gpu_mib) == ("named", "t4", 2, 4, 15360)
    assert (first.placement, first.namespaces, first.is_default) == (SharePlacement.PACK, frozenset({"atlas"}), True)
    assert (first.price, second.price, second.nodes, second.namespaces) == (price, None, None, frozenset())
    assert found.quotas == {("atlas", "nvidia.com/gpu.shared"): 2}
    assert (found.ambiguous, found.denies, found.assigns) == (frozenset({"nvidia.com/gpu"}), True, True)


@pytest.mark.parametrize(("mode", "denies", "assigns"), [("deny", True, True), ("warn", False, True), ("none", False, False)])
def test_admission_does_what_it_is_told(mode: str, denies: bool, assigns: bool) -> None:
    given: dict[str, Any] = {"admission": Admission(mode=AdmissionMode(mode)), "kubernetes": (1, 36)}
    found = supply.of(plan(pool(Exclusive(), "t4"), **given), {})
    assert (found.denies, found.assigns) == (denies, assigns)
    assert not supply.of(plan(pool(Exclusive(), "t4"), **given | {"kubernetes": (1, 35)}), {}).assigns


@pytest.mark.parametrize("card", scale.part(cards.ids(), 6))
def test_as_many_nodes_are_needed_as_sizing_says(card: str) -> None:
    """For users of one size and shares of one kind; of several kinds, sizing lets users take larger ones too."""
    for users, gib, gpus in ((1, 1, 1), (17, 3, 2), (40, 9, 4), (5, 30, 8)):
        found = size(demanded(card, (users, gib), gpus=gpus))
        pods = tuple(PodRequest(namespace="a", name=str(number), memory_bytes=gib << 30) for number in range(users))
        for option in [one for one in found.options if len(one.grants) == 1]:
            selected = pool(option.pool.sharing, card, gpus=gpus, nodes=NodeSelector(match_labels=(("a", "b"),)))
            outcome = engine.simulate(supply.of(plan(selected), {}), Workload(source="", pods=pods))
            assert (outcome.pools[0].placed, outcome.pools[0].nodes) == (users, option.nodes_needed)
