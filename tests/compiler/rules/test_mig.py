"""Rules on layouts, goals and profile names."""

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog import cards
from gpushare.intent.types import (
    Balanced,
    Goal,
    Instances,
    Layout,
    LayoutGroup,
    MemoryEach,
    Mig,
    MigStrategy,
    MostInstances,
    TimeSlicing,
)
from gpushare.rules import mig as mig_rules
from tests.compiler.resolved.builders import A100, check, findings, memory, pool, rules_of

RULES = rules_of(mig_rules)
SEVEN: Layout = (("1g.5gb", 7),)
MIXED: Layout = (("2g.10gb", 2), ("1g.5gb", 3))
SINGLE = MigStrategy.SINGLE

Found = list[tuple[str, str, str]]


def groups(*entries: tuple[tuple[int, ...], Layout]) -> tuple[LayoutGroup, ...]:
    return tuple(LayoutGroup(gpus=gpus, layout=layout) for gpus, layout in entries)


@pytest.mark.parametrize(
    ("card", "words"),
    [("t4", "a Tesla T4 has no MIG"), ("b100", "no source confirms that a B100 has MIG")],
)
def test_a_card_without_mig_is_refused_at_the_mode(card: str, words: str) -> None:
    one = pool(Mig(wanted=SEVEN), card)
    assert findings(RULES, one) == [("GS401", "/sharing/mode", "value")]
    assert check(RULES, one)[0].message == words


def test_a_layout_that_does_not_fit_is_explained_and_the_nearest_are_named() -> None:
    one = pool(Mig(wanted=(("3g.20gb", 2), ("1g.5gb", 1))))
    assert findings(RULES, one) == [("GS402", "/sharing/layout", "value")]
    (finding,) = check(RULES, one)
    assert finding.message == "layout {3g.20gb: 2, 1g.5gb: 1} does not fit an A100-SXM4-40GB"
    assert finding.hints == (
        "two 3g.20gb take all eight memory slices; nothing is left for 1g.5gb",
        "nearest valid: {3g.20gb: 2}, {3g.20gb: 1, 1g.5gb: 4}, {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}",
    )


def test_layout_finding_points_to_its_entry() -> None:
    wanted = groups(((0, 1), SEVEN), ((2, 3), (("1g.5gb", 8),)))
    assert findings(RULES, pool(Mig(wanted=wanted))) == [("GS402", "/sharing/layouts/1/layout", "value")]


@pytest.mark.parametrize("card", [card for card in cards.ids() if cards.load(card).mig])
def test_every_maximal_layout_of_every_card_is_accepted(card: str) -> None:
    geometry = cards.load(card).mig
    assert geometry
    for layout in mig.maximal_layouts(geometry):
        assert findings(RULES, pool(Mig(wanted=layout), card)) == []


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("1g.5gb.me", "write 1g.5gb+me"),
        ("1g.5gb.ME", "write 1g.5gb+me"),
        ("mig-1g.5gb", "write 1g.5gb"),
        ("all-1g.5gb", "write 1g.5gb"),
        ("nvidia.com/mig-1g.5gb.me.shared", "write 1g.5gb+me"),
        ("1G.5GB", "write 1g.5gb"),
        ("MIG 3g.20gb", "write 3g.20gb"),
        ("3g.40gb", "with as many slices it has 3g.20gb"),
        ("1g.12gb", "with as many slices it has 1g.5gb, 1g.5gb+me and 1g.10gb"),
    ],
)
def test_unknown_profile_is_reported_at_its_key_with_a_correction(written: str, meant: str) -> None:
    one = pool(Mig(wanted=(("1g.5gb", 1), (written, 1))))
    assert findings(RULES, one) == [("GS403", f"/sharing/layout/{written.replace('/', '~1')}", "key")]
    assert check(RULES, one)[0].hints == (meant,)


def test_a_profile_of_no_size_at_all_gets_the_cards_own() -> None:
    (finding,) = check(RULES, pool(Mig(wanted=(("small", 1),)), "a30"))
    assert finding.hints == ("it has 1g.6gb, 2g.12gb and 4g.24gb; gpushare cards a30 shows every layout",)


def test_compute_instances_are_refused_with_the_whole_instance_as_hint() -> None:
    (finding,) = check(RULES, pool(Mig(wanted=(("1c.3g.20gb", 1),))))
    assert (finding.code, finding.hints[1]) == ("GS403", "write 3g.20gb")


def test_unknown_profiles_are_found_in_layouts_replicas_and_caps() -> None:
    wanted = groups(((0, 1, 2), SEVEN), ((3,), (("1g.6gb", 1),)))
    one = pool(Mig(wanted=wanted, replicas=(("2g.12gb", 2),)), **memory(cap=(("4g.24gb", 1 << 30),)))
    assert findings(RULES, one) == [
        ("GS403", "/sharing/layouts/1/layout/1g.6gb", "key"),
        ("GS403", "/sharing/replicas/2g.12gb", "key"),
        ("GS403", "/memory/cap/4g.24gb", "key"),
    ]


MISSING, REPEATED, OUTSIDE = "/sharing/layouts", "/sharing/layouts/1/gpus/0", "/sharing/layouts/1/gpus/1"


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((0, 1), (2, 3), []),
        ((3, 1), (0, 2), []),
        ((0, 1), (3,), [("GS404", MISSING, "key")]),
        ((0, 1, 2), (2, 3), [("GS404", REPEATED, "value")]),
        ((0, 1, 2), (3, 4), [("GS404", OUTSIDE, "value")]),
        ((0, 1, 2), (3, -1), [("GS404", OUTSIDE, "value")]),
        ((0, 1), (1, 4), [("GS404", REPEATED, "value"), ("GS404", OUTSIDE, "value")]),
        ((0, 0), (1, 2, 3), [("GS404", "/sharing/layouts/0/gpus/1", "value")]),
    ],
)
def test_every_gpu_has_exactly_one_layout(first: tuple[int, ...], second: tuple[int, ...], expected: Found) -> None:
    assert findings(RULES, pool(Mig(wanted=groups((first, SEVEN), (second, MIXED))))) == expected


def test_gpus_without_a_layout_are_reported() -> None:
    (finding,) = check(RULES, pool(Mig(wanted=groups(((0, 1), SEVEN)))))
    assert finding.message == "GPUs 2 and 3 of 4 have no layout"
    assert finding.hints == ("add - {gpus: [2, 3], layout: none} to leave them whole",)


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (SEVEN, []),
        (MostInstances(), []),
        (groups(((0, 1), SEVEN), ((2, 3), SEVEN)), []),
        (MIXED, [("GS405", "/sharing/layout", "value")]),
        (groups(((0, 1), SEVEN), ((2, 3), ())), [("GS405", "/sharing/layouts/1/layout", "value")]),
        (groups(((0, 1), SEVEN), ((2, 3), (("1g.5gb", 6),))), [("GS405", "/sharing/layouts/1/layout", "value")]),
        (groups(((0, 1), ()), ((2, 3), SEVEN)), [("GS405", "/sharing/layouts/1/layout", "value")]),
        (Balanced(), [("GS405", "/sharing/goal", "value")]),
    ],
)
def test_strategy_single_needs_equal_gpus_with_one_profile(
    wanted: Layout | tuple[LayoutGroup, ...] | Goal, expected: Found
) -> None:
    assert findings(RULES, pool(Mig(wanted=wanted, strategy=SINGLE))) == expected
    assert findings(RULES, pool(Mig(wanted=wanted))) == []


@pytest.mark.parametrize(
    ("card", "goal", "hint"),
    [
        (A100, Instances(count=8), "an A100-SXM4-40GB can have 1, 2, 3, 4, 5, 6 or 7"),
        ("a30", MemoryEach(size_bytes=24 << 30), "the largest instance of known memory is 4g.24gb"),
        ("thor-igpu", MemoryEach(size_bytes=1 << 30), "a goal that asks for a number"),
        ("rtx-pro-5000-48gb", Balanced(), "balanced is defined for cards with four or seven slices"),
    ],
)
def test_a_goal_out_of_reach_is_refused_with_what_the_card_can_do(card: str, goal: Goal, hint: str) -> None:
    one = pool(Mig(wanted=goal), card)
    assert findings(RULES, one) == [("GS406", "/sharing/goal", "value")]
    assert hint in check(RULES, one)[0].hints[0]


def test_unmeasured_instances_are_reported_as_unmeasured() -> None:
    (finding,) = check(RULES, pool(Mig(wanted=MemoryEach(size_bytes=1 << 30)), "thor-igpu"))
    assert finding.message.startswith("the memory of ")
    assert finding.message.endswith("has not been measured, so instances with 1Gi usable each cannot be guaranteed")


def test_replicas_of_a_profile_that_is_not_there_are_refused_at_the_key() -> None:
    one = pool(Mig(wanted=SEVEN, replicas=(("1g.5gb", 2), ("2g.10gb", 2))))
    assert findings(RULES, one) == [("GS407", "/sharing/replicas/2g.10gb", "key")]
    assert check(RULES, one)[0].hints == ("its GPUs have 1g.5gb",)


def test_replicas_may_name_profiles_of_a_goal() -> None:
    assert findings(RULES, pool(Mig(wanted=MostInstances(), replicas=(("1g.5gb", 2),)))) == []
    assert [code for code, *_ in findings(RULES, pool(Mig(wanted=MostInstances(), replicas=(("2g.10gb", 2),))))] == ["GS407"]


def test_a_mig_pool_with_whole_gpus_only_is_refused() -> None:
    assert findings(RULES, pool(Mig(wanted=()))) == [("GS408", "/sharing/layout", "value")]
    assert findings(RULES, pool(Mig(wanted=groups(((0, 1, 2, 3), ()))))) == [("GS408", "/sharing/layouts", "key")]


def test_whole_gpus_beside_mig_are_accepted() -> None:
    assert findings(RULES, pool(Mig(wanted=groups(((0, 1, 2), SEVEN), ((3,), ()))))) == []


def test_mig_rules_ignore_other_modes_and_unknown_cards() -> None:
    assert findings(RULES, pool(TimeSlicing(replicas=2)), pool(Mig(wanted=SEVEN), "no-such-card", "other")) == []
