"""What claims get: of every card and profile exactly as many fit on a device as the pool says, by the scheduler's rule."""

from fractions import Fraction
from typing import Any

import pytest

from gpushare.core.units import MIB
from gpushare.facts.catalog import cards
from gpushare.intent.types import CapWord, Dra, Exclusive, Memory, Mig, Platform, Pool, Sharing, TimeSlicing
from gpushare.offering import claims
from gpushare.resolved import claim_plan
from gpushare.resolved.claim_plan import ClaimPlan
from gpushare.resolved.plan import Plan
from gpushare_node.contract.policy import Backend, DraShares
from tests.compiler.resolved.builders import plan, pool

NVIDIA = [card for card in map(cards.load, cards.ids()) if card.vendor == "nvidia"]
REPLICAS = (2, 3, 4, 7, 10)
NUMBERS = ("multiprocessors", "copyEngines", "decoders", "encoders", "jpegEngines", "ofaEngines")
MEMORY, COUNT = DraShares.MEMORY, DraShares.COUNT


def planned(one: Pool, shares: DraShares = MEMORY) -> Plan:
    return plan(one, kubernetes=(1, 36), platform=Platform(dra=Dra(shares=shares)))


def of_dra(sharing: Sharing, card: str = "t4", **given: Any) -> Pool:
    return pool(sharing, card, backend=Backend.DRA, **given)


def claimed(one: Pool, shares: DraShares = MEMORY) -> tuple[ClaimPlan, ...]:
    made = planned(one, shares)
    return claim_plan.of_pool(made, made.pools[0])


def mib(quantity: str) -> int:
    assert quantity.endswith("Mi")
    return int(quantity.removesuffix("Mi"))


@pytest.mark.parametrize("replicas", REPLICAS)
def test_exactly_as_many_shares_of_memory_fit_on_every_card(replicas: int) -> None:
    for card in NVIDIA:
        if card.memory_mib is None:
            continue
        made = planned(of_dra(TimeSlicing(replicas=replicas), card.id))
        (shape,) = claims.shapes(made.pools[0].pool, card, made.pools[0].kinds, made.division)
        asked = mib(shape.alternatives[0]["memory"])
        assert replicas * asked <= card.memory_mib < (replicas + 1) * asked, card.id


@pytest.mark.parametrize("replicas", REPLICAS)
@pytest.mark.parametrize("shares", DraShares)
def test_the_parts_of_an_instance_fit_as_often_as_there_are_replicas(replicas: int, shares: DraShares) -> None:
    """The driver has `shares` on an instance too, one a claim; without them the memory keeps others away."""
    tried = 0
    for card in NVIDIA:
        for profile in card.mig.profiles if card.mig else ():
            if claims.missing(profile):
                continue
            made = planned(of_dra(Mig(wanted=((profile.name, 1),), replicas=replicas), card.id), shares)
            (shape,) = claims.shapes(made.pools[0].pool, card, made.pools[0].kinds, made.division)
            engines = profile.engines
            has = (profile.sm, engines.copy, engines.decoders, engines.encoders, engines.jpeg, engines.ofa)
            for place, asked in zip(sorted({(p.start, p.size) for p in profile.placements}), shape.alternatives, strict=True):
                slices = {f"memorySlice{at}": "0" for at in range(place[0], sum(place))}
                assert asked.items() >= slices.items(), (card.id, profile.name)
                assert asked.keys() == {*slices, *NUMBERS, *(["memory"] if shares is MEMORY else [])}
                assert all(replicas * int(asked[name]) <= (total or 0) for name, total in zip(NUMBERS, has, strict=True))
                if shares is MEMORY:
                    part = mib(asked["memory"])
                    assert replicas * part <= (profile.memory_mib or 0) < (replicas + 1) * part
            assert made.division.shares == (replicas if shares is COUNT else 1)
            tried += 1
    assert tried > len([card for card in NVIDIA if card.mig])


def test_claims_of_a_shared_pool_are_a_share_and_its_sizes() -> None:
    one = of_dra(TimeSlicing(replicas=4), sizes=(("large", 7680 << 20), ("all", 15360 << 20), ("third", 5120 << 20)))
    assert [(each.template, each.memory_mib, each.per_device, each.cap_mib) for each in claimed(one)] == [
        ("gpushare-research.share", 3840, 4, 3724),
        ("gpushare-research.all", 15360, 1, 4 * 3724),
        ("gpushare-research.large", 7680, 2, 2 * 3724),
        ("gpushare-research.third", 5120, 3, 3724 * 4 // 3),
    ]


@pytest.mark.parametrize("replicas", [2, 3, 4, 5, 7, 11])
def test_claims_that_fill_a_gpu_never_may_use_more_than_is_usable(replicas: int) -> None:
    sizes = tuple((f"s{size}", size * MIB) for size in (1024, 1500, 5000, 7680, 12000))
    for each in claimed(of_dra(TimeSlicing(replicas=replicas), sizes=sizes)):
        assert each.memory_mib is not None
        assert each.cap_mib is not None
        usable = Fraction(97, 100) * 15360
        assert each.per_device * each.memory_mib <= 15360 < (each.per_device + 1) * each.memory_mib
        assert each.per_device * each.cap_mib <= usable


def test_a_cap_of_less_is_less_for_every_size() -> None:
    one = of_dra(TimeSlicing(replicas=4), memory=Memory(cap=3000 * MIB), sizes=(("large", 7680 << 20),))
    assert [each.cap_mib for each in claimed(one)] == [3000, 6000]
    without = of_dra(TimeSlicing(replicas=4), memory=Memory(cap=CapWord.NONE), sizes=(("large", 7680 << 20),))
    assert [each.cap_mib for each in claimed(without)] == [None, None]


def test_by_count_a_claim_is_a_share() -> None:
    (only,) = claimed(of_dra(TimeSlicing(replicas=4)), COUNT)
    assert (only.memory_mib, only.per_device, only.cap_mib) == (None, 4, 3724)


@pytest.mark.parametrize("shares", DraShares)
def test_a_whole_device_has_one_claim_without_a_cap(shares: DraShares) -> None:
    (gpu,) = claimed(of_dra(Exclusive()), shares)
    assert (gpu.template, gpu.memory_mib, gpu.per_device, gpu.cap_mib) == ("gpushare-research.gpu", 15360, 1, None)
    instances = claimed(of_dra(Mig(wanted=(("3g.20gb", 1), ("1g.5gb", 3))), "a100-pcie-40gb"), shares)
    assert [(one.template, one.device_class, one.per_device) for one in instances] == [
        ("gpushare-research.3g.20gb", "gpushare-research-3g-20gb", 1),
        ("gpushare-research.1g.5gb", "gpushare-research-1g-5gb", 1),
    ]


def test_a_pool_of_the_device_plugin_has_no_claims() -> None:
    assert claimed(pool(TimeSlicing(replicas=4), "t4")) == ()
