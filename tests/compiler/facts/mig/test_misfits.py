"""Layouts that are not legal: the sentence names what is really exceeded, and what is offered instead is legal and near."""

import re

import pytest

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from tests.compiler.facts.mig import known_cards, reference_solver
from tests.compiler.facts.mig.test_legality import multisets
from tests.support import scale

WORDS = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
PRO_6000 = "rtx-pro-6000-server"
THINGS = {"decoder": "decoders", "encoder": "encoders", "JPEG engine": "jpeg", "optical flow engine": "ofa"}

COUNT = re.compile(r"a card holds at most (?P<most>\d+) (?P<what>.+); this layout has (?P<has>\d+)")
TAKE_ALL = re.compile(
    r"(?P<served>.+) takes? (?:all (?P<n>\w+)|the card's only) (?P<thing>.+?); nothing is left for (?P<rest>.+)"
)
TAKE_SOME = re.compile(
    r"(?P<served>.+) takes? (?P<used>\w+) of the (?P<n>\w+) (?P<thing>.+?); "
    r"(?P<rest>.+) needs? (?P<need>\w+), and only (?P<left>\w+) (is|are) left"
)
NEED = re.compile(r"(?P<rest>.+) needs? (?P<need>\w+) (?P<thing>.+?); a card has (?P<n>\w+)")
PLACES = re.compile(r"no placement: (?P<starts>.+); (?:beside (?P<served>.+) )?there is (?P<room>no room for .+|room for .+)")


def number(word: str) -> int:
    return WORDS.index(word) if word in WORDS else int(word)


def items(text: str | None) -> dict[str, int]:
    found = {}
    for item in re.split(r", | and ", text) if text else ():
        *count, name = item.split(" ")
        found[name] = number(count[0]) if count else 1
    return found


def amount(geometry, thing: str, counts: dict[str, int]) -> int:
    """How much of a thing these instances take."""
    rows = {profile.name: profile for profile in geometry.profiles}
    thing = thing.removesuffix("s")
    if thing == "memory slice":
        return sum(count * min(place.size for place in rows[name].placements) for name, count in counts.items())
    return sum(count * (getattr(rows[name].engines, THINGS[thing]) or 0) for name, count in counts.items())


def total(geometry: Geometry, thing: str) -> int:
    thing = thing.removesuffix("s")
    there: int = geometry.units if thing == "memory slice" else getattr(geometry.engine_totals, THINGS[thing])
    return there


def is_true(geometry: Geometry, layout, sentence: str, legal: set[reference_solver.Multiset]) -> bool:
    """Whether each number in the sentence is right and the card cannot hold the layout for that reason alone."""
    rows = {profile.name: profile for profile in geometry.profiles}
    wanted: dict[str, int] = dict(layout)
    if match := COUNT.fullmatch(sentence):
        what, most, has = match["what"], int(match["most"]), int(match["has"])
        gfx: int = sum(count for name, count in layout if "+gfx" in name)
        match what.removeprefix("instances").removeprefix("instance"):
            case "":
                return has == sum(wanted.values()) > most == geometry.max_instances
            case " without +gfx":
                return has == sum(wanted.values()) - gfx > most == geometry.max_compute_instances
            case " with +gfx":
                return has == gfx > most == geometry.max_gfx_instances
        name = what.removeprefix("of ")
        return has == wanted[name] > most == rows[name].max_count
    if match := TAKE_ALL.fullmatch(sentence):
        served, rest, there = items(match["served"]), items(match["rest"]), total(geometry, match["thing"])
        says = number(match["n"]) if match["n"] else 1
        is_needed = all(amount(geometry, match["thing"], {name: count}) > 0 for name, count in rest.items())
        of_layout = (served | rest).items() <= wanted.items()
        return of_layout and is_needed and says == there == amount(geometry, match["thing"], served)
    if match := TAKE_SOME.fullmatch(sentence):
        served, rest, there = items(match["served"]), items(match["rest"]), total(geometry, match["thing"])
        used, need, left = number(match["used"]), number(match["need"]), number(match["left"])
        right = used == amount(geometry, match["thing"], served) and need == amount(geometry, match["thing"], rest)
        return right and (served | rest).items() <= wanted.items() and need > left == there - used
    if match := NEED.fullmatch(sentence):
        rest, there = items(match["rest"]), total(geometry, match["thing"])
        need = number(match["need"])
        return number(match["n"]) == there < need == amount(geometry, match["thing"], rest)
    match = PLACES.fullmatch(sentence)
    assert match is not None
    served = items(match["served"])
    room, _, asked = match["room"].removeprefix("no ").partition(", not ")
    ((name, possible),) = items(room.removeprefix("room for ")).items()
    possible = possible if asked else 0
    beside = frozenset((served | ({name: possible} if possible else {})).items())
    more = frozenset((served | {name: possible + 1}).items())
    instances = [rows[own] for own, count in layout for _ in range(count)]
    is_only_place = reference_solver.within_limits(geometry, instances) and served.items() <= wanted.items()
    is_asked = not asked or wanted[name] == number(asked)
    return is_only_place and is_asked and beside in legal and more not in legal


@pytest.mark.parametrize(
    ("card", "layout", "sentence"),
    [
        (known_cards.A100, {"3g.20gb": 2, "1g.5gb": 1}, "two 3g.20gb take all eight memory slices; nothing is left for 1g.5gb"),
        (known_cards.A100, {"1g.5gb": 8}, "a card holds at most 7 of 1g.5gb; this layout has 8"),
        (known_cards.A100, {"1g.5gb": 7, "1g.5gb+me": 1}, "a card holds at most 7 instances; this layout has 8"),
        (
            known_cards.A100,
            {"1g.5gb": 1, "2g.10gb": 1, "7g.40gb": 1},
            "7g.40gb takes all eight memory slices; nothing is left for 2g.10gb and 1g.5gb",
        ),
        (
            known_cards.A100,
            {"2g.10gb": 3, "3g.20gb": 1},
            "3g.20gb takes four of the eight memory slices; three 2g.10gb need six, and only four are left",
        ),
        (
            known_cards.A100,
            {"2g.10gb": 3, "1g.5gb": 2},
            (
                "no placement: 2g.10gb can only start at slice 0, 2 or 4 and 1g.5gb can only start at slice 0 to 6; "
                "beside three 2g.10gb there is room for one 1g.5gb, not two"
            ),
        ),
        (
            known_cards.A100,
            {"4g.20gb": 1, "3g.20gb": 1, "9g.80gb": 1, "0g.0gb": 2},
            "the card has no profile 9g.80gb and 0g.0gb",
        ),
        (
            PRO_6000,
            {"1g.24gb+me.all": 1, "1g.24gb+gfx": 1},
            "1g.24gb+me.all takes all four decoders; nothing is left for 1g.24gb+gfx",
        ),
        (PRO_6000, {"1g.24gb+me": 1, "4g.96gb": 1}, "4g.96gb takes all twelve memory slices; nothing is left for 1g.24gb+me"),
        (
            "a30",
            {"1g.6gb+me": 1, "2g.12gb+me": 1},
            "2g.12gb+me takes the card's only JPEG engine; nothing is left for 1g.6gb+me",
        ),
        ("thor-igpu", {"1g.0gb": 1, "2g.0gb": 1}, "a card holds at most 1 instance without +gfx; this layout has 2"),
        ("thor-igpu", {"1g.0gb+gfx": 1, "2g.0gb+gfx": 1}, "a card holds at most 1 instance with +gfx; this layout has 2"),
    ],
)
def test_misfit_reason_is_in_plain_words(card, layout, sentence):
    assert mig.why_not(known_cards.geometry(card), tuple(layout.items())) == sentence


@pytest.mark.parametrize("card", known_cards.distinct())
def test_every_reason_is_true_of_its_layout(card):
    geometry = known_cards.geometry(card)
    legal = {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(geometry)}
    illegal = [layout for layout in multisets(geometry) if frozenset(layout) not in legal]
    illegal += [((profile.name, profile.max_count + 1),) for profile in geometry.profiles]
    step = 1 + len(illegal) // 4000
    for layout in illegal[::step]:
        sentence = mig.why_not(geometry, layout)
        assert is_true(geometry, layout, sentence, legal), (layout, sentence)


def test_legal_layout_has_no_misfit_reason(a100):
    assert mig.why_not(a100, (("3g.20gb", 2),)) == ""


def test_nearest_layouts_match_the_documentation(a100):
    assert mig.nearest(a100, (("3g.20gb", 2), ("1g.5gb", 1))) == (
        (("3g.20gb", 2),),
        (("3g.20gb", 1), ("1g.5gb", 4)),
        (("3g.20gb", 1), ("2g.10gb", 1), ("1g.5gb", 2)),
    )


@pytest.mark.parametrize(
    ("wanted", "first"),
    [
        ({"1g.5gb": 8}, (("1g.5gb", 7),)),
        ({"4g.20gb": 2}, (("4g.20gb", 1),)),
        ({"2g.10gb": 3, "1g.5gb": 2}, (("2g.10gb", 3), ("1g.5gb", 1))),
        ({"2g.10gb": 3, "3g.20gb": 1}, (("3g.20gb", 1), ("2g.10gb", 2))),
        ({"1g.5gb": 7, "1g.5gb+me": 1}, (("1g.5gb", 7),)),
        ({"3g.20gb": 2, "9g.80gb": 1}, (("3g.20gb", 2),)),
    ],
)
def test_nearest_layout_keeps_the_most_instances(a100, wanted, first):
    assert mig.nearest(a100, tuple(wanted.items()))[0] == first


def test_nearest_layouts_are_limited_to_the_requested_number(a100):
    wanted = (("3g.20gb", 2), ("1g.5gb", 1))
    assert mig.nearest(a100, wanted, limit=2) == mig.nearest(a100, wanted)[:2]


def test_nearest_layouts_are_legal_distinct_and_deterministic(a100):
    legal = {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(a100)}
    for layout in scale.some(list(multisets(a100)), 30):
        if frozenset(layout) in legal:
            continue
        near = mig.nearest(a100, layout)
        assert len(near) == len({frozenset(one) for one in near}) == 3
        assert all(frozenset(one) in legal for one in near)
        assert near == mig.nearest(a100, layout[::-1])
        if not any("+" in name for name, _ in layout):
            assert not any("+" in name for one in near for name, _ in one)


def test_the_first_of_the_nearest_keeps_as_many_slices_as_any_legal_layout(a100):
    size = {profile.name: profile.placements[0].size for profile in a100.profiles}
    legal = {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(a100)}

    def kept(one, wanted):
        return sum(size[name] * min(count, wanted.get(name, 0)) for name, count in one)

    for layout in list(multisets(a100))[::11]:
        wanted = dict(layout)
        best = max(kept(one, wanted) for one in legal)
        assert kept(mig.nearest(a100, layout)[0], wanted) == best
