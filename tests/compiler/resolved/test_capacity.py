"""What a node offers: resource names and counts, by mode, strategy and renaming (contract of k8s-device-plugin v0.20)."""

import pytest

from gpushare.core.diagnostics import is_error
from gpushare.core.units import MIB
from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.facts.catalog.cards import Catalog, usable_bytes
from gpushare.intent.stacks import VendorStack
from gpushare.intent.types import (
    Exclusive,
    Instances,
    Layout,
    LayoutGroup,
    MemoryEach,
    Mig,
    MigStrategy,
    MostInstances,
    Mps,
    NodeSelector,
    NvidiaStack,
    Partition,
    Platform,
    Pool,
    Sharing,
    TimeSlicing,
)
from gpushare.offering.modes.mps import has_shares
from gpushare.rules import run_rules
from gpushare_node.contract.struct import replace
from tests.compiler.resolved.builders import A100, capacity, intent, memory, plan, planned, pool

AMD = Platform(stack=NvidiaStack.NONE, others={"amd": VendorStack.existing("amd")})
SINGLE = MigStrategy.SINGLE
SEVEN: Layout = (("1g.5gb", 7),)
MIXED: Layout = (("2g.10gb", 2), ("1g.5gb", 3))
BESIDE = (LayoutGroup(gpus=(0, 1, 2), layout=SEVEN), LayoutGroup(gpus=(3,), layout=()))
WITH_MEDIA: Layout = (("1g.5gb+me", 1), ("1g.5gb", 6))


@pytest.mark.parametrize(
    ("sharing", "offered"),
    [
        (Exclusive(), {"gpu": 4}),
        (TimeSlicing(replicas=4, rename=False), {"gpu": 16}),
        (TimeSlicing(replicas=4), {"gpu.shared": 16}),
        (Mps(replicas=8, rename=False), {"gpu": 32}),
        (Mps(replicas=8), {"gpu.shared": 32}),
        (Mig(wanted=SEVEN, strategy=SINGLE), {"gpu": 28}),
        (Mig(wanted=SEVEN, strategy=SINGLE, replicas=2), {"gpu.shared": 56}),
        (Mig(wanted=SEVEN, strategy=SINGLE, replicas=2, rename=False), {"gpu": 56}),
        (Mig(wanted=MIXED), {"mig-1g.5gb": 12, "mig-2g.10gb": 8}),
        (Mig(wanted=WITH_MEDIA), {"mig-1g.5gb": 24, "mig-1g.5gb.me": 4}),
        (Mig(wanted=WITH_MEDIA, replicas=2), {"mig-1g.5gb.shared": 48, "mig-1g.5gb.me.shared": 8}),
        (Mig(wanted=BESIDE), {"gpu": 1, "mig-1g.5gb": 21}),
        (Mig(wanted=BESIDE, replicas=3), {"gpu": 1, "mig-1g.5gb.shared": 63}),
        (Mig(wanted=MIXED, replicas=(("1g.5gb", 2),)), {"mig-1g.5gb.shared": 24, "mig-2g.10gb": 8}),
        (Mig(wanted=MIXED, replicas=(("1g.5gb", 2),), rename=False), {"mig-1g.5gb": 24, "mig-2g.10gb": 8}),
        (Mig(wanted=MostInstances()), {"mig-1g.5gb": 28}),
        (Mig(wanted=Instances(count=2)), {"mig-3g.20gb": 8}),
        (Mig(wanted=MemoryEach(size_bytes=9 << 30)), {"mig-1g.10gb": 16}),
    ],
)
def test_node_capacity_for_each_sharing_mode(sharing: Sharing, offered: dict[str, int]) -> None:
    assert capacity(pool(sharing)) == {f"nvidia.com/{name}": number for name, number in offered.items()}


def test_totals_are_unknown_rather_than_one_when_the_nodes_are_not_counted() -> None:
    assert planned(pool(Exclusive())).resources[0].total == 8
    by_label = NodeSelector(match_labels=(("flavour", "gpu"),))
    assert planned(pool(Exclusive(), nodes=by_label)).resources[0].total is None


def modes(card: cards.Card) -> list[Sharing]:
    if card.vendor == "amd":
        return [Exclusive(), *(Partition(compute=one.compute, memory=one.memory) for one in card.partition_modes)]
    mps = [Mps(replicas=card.mps_max_replicas)] if has_shares(card) else []
    return [Exclusive(), TimeSlicing(replicas=2), TimeSlicing(replicas=7, rename=False), *mps]


def layouts(card: cards.Card) -> tuple[Layout, ...]:
    return mig.maximal_layouts(card.mig) if card.mig else ()


def legal(*pools: Pool) -> bool:
    is_amd = any(cards.load(one.card).vendor == "amd" for one in pools)
    asked = replace(intent(*pools), platform=AMD) if is_amd else intent(*pools)
    return not any(is_error(finding) for finding in run_rules(asked, Catalog()))


def check_devices(one: Pool) -> None:
    """What must hold of every pool: counts add up, devices stand apart, caps stay within the usable memory."""
    resolved = planned(one)
    card = resolved.card
    counted: dict[str, int] = {}
    stands: set[tuple[int, int]] = set()
    for device in resolved.devices:
        counted[device.resource] = counted.get(device.resource, 0) + device.replicas
        slots = {(device.gpu, unit) for unit in range(device.start, device.start + device.size)}
        assert not slots & stands
        stands |= slots
        if device.cap_mib is not None:
            usable = usable_bytes(device.memory_mib, None)
            assert usable
            whole = (device.memory_mib or 0) * MIB if isinstance(one.sharing, Mps) else usable
            assert 0 < device.cap_mib * device.replicas * MIB <= whole < (device.cap_mib + 1) * device.replicas * MIB
        else:
            assert device.replicas == 1
    assert counted == {resource.name: resource.per_node for resource in resolved.resources}
    assert {device.gpu for device in resolved.devices} == set(range(one.gpus_per_node))
    parts = max((mode.partitions for mode in card.partition_modes), default=1)
    assert max(unit for _, unit in stands) < (card.mig.units if card.mig else parts)


@pytest.mark.parametrize("card_id", cards.ids())
def test_every_card_and_mode_resolves_when_the_rules_allow_it(card_id: str) -> None:
    card = cards.load(card_id)
    checked = [one for sharing in modes(card) if legal(one := pool(sharing, card_id, gpus=2))]
    for one in checked:
        check_devices(one)
    assert len(checked) >= (len(modes(card)) if card.memory_mib else 1)


@pytest.mark.parametrize("card_id", [card for card in cards.ids() if cards.load(card).mig])
def test_every_maximal_layout_of_every_card_resolves(card_id: str) -> None:
    card = cards.load(card_id)
    assert layouts(card)
    known = {profile.name: profile.memory_mib for profile in card.mig.profiles} if card.mig else {}
    for layout in layouts(card):
        whole = pool(Mig(wanted=layout), card_id, gpus=1)
        check_devices(whole)
        if all(known[name] for name, _ in layout):
            check_devices(pool(Mig(wanted=layout, replicas=2), card_id, gpus=1))
    assert legal(*(pool(Mig(wanted=layout), card_id, f"pool-{at}") for at, layout in enumerate(layouts(card))))


def test_plan_is_independent_of_the_layout_order() -> None:
    one, other = (planned(pool(Mig(wanted=wanted, replicas=2))) for wanted in (MIXED, MIXED[::-1]))
    assert (one.devices, one.profile, one.resources) == (other.devices, other.profile, other.resources)


def test_a_cap_by_profile_reaches_its_devices() -> None:
    sharing = Mig(wanted=MIXED, replicas=(("1g.5gb", 2),))
    devices = planned(pool(sharing, **memory(cap=(("1g.5gb", 2200 << 20),)))).devices
    shown = {(device.profile, device.replicas, device.cap_mib) for device in devices}
    assert shown == {("1g.5gb", 2, 2200), ("2g.10gb", 1, None)}


def test_a_whole_gpu_takes_all_units_of_its_card() -> None:
    devices = planned(pool(Mig(wanted=BESIDE))).devices
    assert [(device.start, device.size) for device in devices if device.profile is None] == [(0, 8)]
    assert {device.size for device in planned(pool(Exclusive(), "t4")).devices} == {1}


def test_pools_are_sorted_by_name() -> None:
    assert [one.name for one in plan(pool(Exclusive(), name="b"), pool(Exclusive(), A100, "a")).pools] == ["a", "b"]
