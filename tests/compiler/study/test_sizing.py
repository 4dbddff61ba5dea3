"""What `size` says is what a compile of its intent gives, and what it counts is what brute force counts."""

import random
from itertools import product

import pytest

from gpushare import pipeline
from gpushare.core import emit
from gpushare.core.units import MIB
from gpushare.facts.catalog import cards
from gpushare.intent.types import Layout, Partition
from gpushare.offering import modes
from gpushare.offering.modes import VARIANTS, partition
from gpushare.offering.modes.traits import Demand, Need, Variant, nodes_for
from gpushare.study.simulation import supply
from gpushare.study.simulation.engine import simulate
from gpushare.study.simulation.outcome import PoolOutcome
from gpushare.study.sizing import Option, intent, size
from gpushare.study.workload.requests import PodRequest, Workload
from gpushare_node.contract.struct import replace
from tests.support import scale

BY_WORD = {variant.word: variant for variant in VARIANTS}
EXCLUSIVE, MIG, MIG_REPLICAS = BY_WORD["exclusive"], BY_WORD["mig"], BY_WORD["mig-replicas"]
TIME_SLICING, MPS = BY_WORD["time-slicing"], BY_WORD["mps"]
GIB = 1024 * MIB
UNAVOIDABLE = {"GS209", "GS725"}
"""Warnings that no other intent for the option avoids: an unconfirmed fact of the card, and an image that is not published."""


def demanded(card: str, *needs: tuple[int | None, int], gpus: int = 1, nodes: int | None = None, hard: bool = False) -> Demand:
    """Users and GiB pairs, the largest size first."""
    asked = tuple(Need(memory_bytes=size_gib * GIB, users=users) for users, size_gib in needs)
    return Demand(card=cards.load(card), needs=asked, gpus_per_node=gpus, nodes=nodes, in_hardware=hard)


def compiled(demand: Demand, option: Option) -> tuple[dict[str, int], dict[tuple[str | None, int], int | None]]:
    """What a compile of the option's intent gives: shares of each resource per node, and the cap of each kind of device."""
    found = pipeline.check(emit.yaml_text(intent(demand, option)).encode(), "intent.yaml")
    assert {finding.code for finding in found.findings} <= UNAVOIDABLE
    assert found.plan is not None
    pool = found.plan.pools[0]
    return {one.name: one.per_node for one in pool.resources}, {
        (one.profile, one.replicas): one.cap_mib for one in pool.devices
    }


@pytest.mark.parametrize("card", cards.ids())
def test_a_compile_of_an_options_intent_gives_its_shares_and_caps(card: str) -> None:
    every = product((((7, 3),), ((9, 11),), ((None, 20),), ((2, 30), (9, 5))), (1, 3), (None, 4))
    asked = [(needs, gpus, nodes) for needs, gpus, nodes in every if nodes or needs[0][0]]
    for needs, gpus, nodes in scale.some(asked, 8):
        found = size(demanded(card, *needs, gpus=gpus, nodes=nodes))
        for option in [one for variant in VARIANTS for one in found.options if one.variant is variant][:2]:
            resources, caps = compiled(found.demand, option)
            offered: dict[str, int] = {}
            for grant in option.grants:
                offered[grant.kind.resource] = offered.get(grant.kind.resource, 0) + grant.kind.per_node
            assert resources == offered
            assert caps == {
                (one.kind.profile.name if one.kind.profile else None, one.kind.replicas): one.cap_mib for one in option.grants
            }


@pytest.mark.parametrize("card", cards.ids())
def test_every_share_of_one_size_is_large_enough_and_the_nodes_suffice(card: str) -> None:
    for option in size(demanded(card, (50, 6), gpus=2)).options:
        enough = sum(grant.kind.per_node for grant in option.grants if grant.provides_bytes >= 6 * GIB)
        assert option.nodes_needed * enough >= 50 > (option.nodes_needed - 1) * enough


def simulated(demand: Demand, option: Option, *, is_open: bool) -> PoolOutcome:
    """What the engine says of the option's own intent, for pods that need what the users need."""
    found = pipeline.check(emit.yaml_text(intent(demand, option)).encode(), "intent.yaml")
    assert found.plan is not None
    offered = supply.of(found.plan, {})
    if is_open:
        offered = replace(offered, pools=tuple(replace(pool, nodes=None) for pool in offered.pools))
    outcome = simulate(offered, pods(demand))
    assert not outcome.unserved
    return outcome.pools[0]


def pods(demand: Demand) -> Workload:
    asked = [need.memory_bytes for need in demand.needs for _ in range(need.users or 0)]
    random.Random(len(asked)).shuffle(asked)
    each = (PodRequest(namespace="a", name=f"pod-{number}", memory_bytes=one) for number, one in enumerate(asked))
    return Workload(source="users", pods=tuple(each))


def test_nodes_needed_are_those_that_simulate_needs() -> None:
    for seed in range(scale.examples(300)):
        chance = random.Random(seed)
        card = cards.load(chance.choice(("t4", "a30", "a100-sxm4-80gb", "h100-sxm5-80gb", "l4", "v100-pcie-32gb")))
        most = (card.memory_mib or 0) * MIB
        sizes = {
            most // chance.choice((1, 2, 3, 5, 8, 13)) * chance.randint(80, 100) // 100 for _ in range(chance.randint(1, 4))
        }
        needs = tuple(Need(memory_bytes=each, users=chance.randint(1, 30)) for each in sorted(sizes, reverse=True))
        demand = Demand(card=card, needs=needs, gpus_per_node=chance.choice((1, 2, 8)))
        options = size(demand).options
        of_workload = size(demand, workload=pods(demand)).options
        assert of_workload == options
        for option in chance.sample(options, min(len(options), 2)):
            grown = simulated(demand, option, is_open=True)
            assert (grown.nodes, grown.stranded_mib is not None) == (option.nodes_needed, True), (seed, option.pool.sharing)
            given = simulated(demand, option, is_open=False)
            assert (given.nodes, given.pending, given.waited_seconds) == (option.nodes_needed, {}, 0)


def test_users_who_come_and_go_need_the_nodes_of_their_peak() -> None:
    demand = demanded("t4", (3, 7))
    each = [PodRequest(namespace="a", name=str(at), memory_bytes=7 * GIB, arrival=at, duration=3) for at in range(9)]
    found = size(demand, workload=Workload(source="users", pods=tuple(each)))
    assert {one.variant.word: (one.nodes_needed, one.wasted_mib) for one in found.options} == {
        "exclusive": (3, 3 * 15360 - 3 * 7168),
        "time-slicing": (2, 2 * 15360 - 3 * 7168),
        "mps": (2, 2 * 15360 - 3 * 7168),
    }


def test_no_share_is_large_enough() -> None:
    assert nodes_for(((4, 3),), (Need(memory_bytes=5, users=1),)) is None


def test_best_option_depends_on_the_number_of_nodes() -> None:
    roomy = size(demanded("t4", (4, 4), nodes=5)).best
    tight = size(demanded("t4", (15, 4), nodes=5)).best
    short = size(demanded("t4", (40, 4), nodes=5)).best
    assert roomy is not None
    assert (roomy.variant, roomy.suffices) == (EXCLUSIVE, True)
    assert tight is not None
    assert (tight.variant, tight.suffices, tight.nodes_needed) == (TIME_SLICING, True, 5)
    assert short is not None
    assert (short.suffices, short.nodes_needed, short.wasted_mib) == (False, 14, 14 * 15360 - 40 * 4096)


def test_equal_node_counts_prefer_isolated_memory() -> None:
    best = size(demanded("a100-sxm4-80gb", (3, 35), (40, 8), gpus=8)).best
    assert best is not None
    assert best.variant is MIG


@pytest.mark.parametrize("card", [card for card in cards.ids() if cards.load(card).mig])
def test_users_of_one_size_get_instances_of_one_profile(card: str) -> None:
    for size_gib in (3, 9, 17):
        options = size(demanded(card, (50, size_gib), gpus=2)).options
        for variant in (MIG, MIG_REPLICAS):
            layouts = [(layout(one), one.users or 0) for one in options if one.variant is variant]
            assert len(layouts) == len({layout for layout, _ in layouts})
            alone = [name for ((name, _), *others), _ in layouts if not others]
            assert len(alone) == len(set(alone)), "of one profile as many as fit, never fewer"
            assert len(alone) == len(layouts), "all of them ask for one resource"


def layout(option: Option) -> Layout:
    """The layout of an option of MIG; empty for others."""
    return modes.of(option.pool).written[1]


def shares(option: Option) -> int:
    return sum(grant.kind.per_node for grant in option.grants)


@pytest.mark.parametrize(
    ("size_gib", "chosen", "beside"),
    [(50, EXCLUSIVE, MIG), (14, TIME_SLICING, MIG_REPLICAS)],
)
def test_whole_gpu_is_preferred_over_a_single_full_instance(size_gib: int, chosen: Variant, beside: Variant) -> None:
    found = size(demanded("a100-sxm4-80gb", (5, size_gib)))
    assert found.best is not None
    assert found.best.variant is chosen
    one = next(one for one in found.options if one.variant is beside and layout(one) == (("7g.80gb", 1),))
    assert (one.nodes_needed, one.wasted_mib) == (found.best.nodes_needed, found.best.wasted_mib)


def test_two_shared_instances_are_preferred_over_one_device() -> None:
    best = size(demanded("h100-sxm5-80gb", (None, 9), gpus=8, nodes=2)).best
    assert best is not None
    assert (best.variant, layout(best), shares(best)) == (MIG_REPLICAS, (("3g.40gb", 2),), 64)


def test_without_users_the_maximum_number_is_computed() -> None:
    found = size(demanded("a100-sxm4-40gb", (None, 4), nodes=2, gpus=8))
    assert found.best is not None
    assert found.best.users == max(option.users or 0 for option in found.options)
    assert found.best.suffices is None


def test_isolation_of_memory_leaves_out_every_mode_that_shares_a_device() -> None:
    found = size(demanded("h100-sxm5-80gb", (14, 9), hard=True))
    assert {option.variant for option in found.options} == {EXCLUSIVE, MIG}
    assert {one.variant for one in found.unfit} == {MIG_REPLICAS, TIME_SLICING, MPS}


def test_preferred_mode_gets_its_best_option() -> None:
    best = size(demanded("h100-sxm5-80gb", (14, 9)), MPS.word).best
    assert best is not None
    assert best.variant is MPS
    none = size(demanded("t4", (14, 9)), MIG.word)
    assert none.best is None
    assert none.reason == "mig: the card has no MIG"


def test_limits_of_mps_and_replicas_are_respected_and_reported() -> None:
    found = size(demanded("h200-sxm5-141gb", (100, 1)))
    mps = next(one for one in found.options if one.variant is MPS)
    assert mps.grants[0].kind.replicas == 48
    assert mps.notes == ("the device plugin admits 48 MPS clients on this card",)
    tiny = Demand(card=cards.load("h200-sxm5-141gb"), needs=(Need(memory_bytes=MIB, users=5),))
    slicing = next(one for one in size(tiny).options if one.variant is TIME_SLICING)
    assert slicing.grants[0].kind.replicas == 1024
    assert slicing.notes == ("an intent has at most 1024 replicas",)


def test_unconfirmed_facts_are_reported() -> None:
    found = size(demanded("b200-180gb", (3, 20)), MIG.word)
    assert found.best is not None
    assert any(text.startswith("placements of ") for text in found.best.unconfirmed)


def test_card_of_unknown_memory_has_no_options() -> None:
    found = size(demanded("rtx-pro-4000", (3, 20)))
    assert found.options == ()
    assert "the memory of the card is not known" in found.reason


def test_partitions_that_no_source_confirms_are_not_proposed() -> None:
    found = size(demanded("mi350p", (10, 4)))
    assert [one.reason for one in found.unfit if one.variant.word == "partition"] == [
        "no source confirms the partitions of the card"
    ]


@pytest.mark.parametrize("card", [card for card in cards.ids() if partition.offered(cards.load(card))])
def test_size_proposes_partitions_of_a_compute_mode_that_divide_memory_most(card: str) -> None:
    partitions = [Partition(compute=one.compute, memory=one.memory) for one in partition.offered(cards.load(card))]
    for gib in (1, 20, 40, 80):
        options = [one for one in size(demanded(card, (8, gib))).options if one.variant.word == "partition"]
        assert [one.pool.sharing for one in options if one.pool.sharing not in partitions] == []
    of_cpx = [sharing.memory for sharing in partitions if sharing.compute == "CPX"]
    assert of_cpx == ["NPS4" if card in ("mi300x", "mi325x") else "NPS1"]
