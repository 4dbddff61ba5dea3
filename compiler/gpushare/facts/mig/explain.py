"""Layouts that are not legal: why, in the user's words, and which layouts are legal instead.

Owns the sentences and the definition of nearness. Every sentence names a limit that is really exceeded.
"""

from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from gpushare.core.wording import join_words
from gpushare.facts.catalog.cards import Geometry
from gpushare.facts.mig.layouts import CardSolver, Counts, Limit, solver_for
from gpushare.intent.types import Layout

_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")

Item = tuple[str, int]


def why_not(geometry: Geometry, layout: Layout) -> str:
    """Return why the layout is not legal, as one sentence without a full stop; empty if it is legal."""
    own = solver_for(geometry)
    if own.is_legal(layout):
        return ""
    counts = own.counts(layout)
    known = {profile.name for profile in own.profiles}
    unknown = [name for name, _ in layout if name not in known]
    if unknown:
        return f"the card has no profile {join_words(unknown)}"
    for limit in own.limits:
        total = limit.taken_by(counts)
        if total > limit.total:
            return _over_count(limit, total) if limit.counts_instances else _over_take(own, counts, limit)
    return _no_placement(own, counts)


def nearest(geometry: Geometry, layout: Layout, limit: int = 3) -> tuple[Layout, ...]:
    """Return up to `limit` legal layouts to write instead, the nearest first, each in canonical order.

    Candidates are the largest legal parts of the wanted layout, and every layout to which nothing can be added. A layout is
    nearer by, in this order: more memory slices of wanted instances kept; more wanted instances kept; fewer profiles that were
    not wanted; fewer instances added; more compute slices in use; the order of `maximal_layouts`. Profiles with attributes
    are considered only if the wanted layout has some. Names that the card does not know are ignored.
    """
    whole = solver_for(geometry)
    counts = whole.counts(layout)
    own = whole if any(count and p.has_attributes for p, count in zip(whole.profiles, counts, strict=True)) else whole.plain
    wanted = own.counts(layout)

    def kept(candidate: Counts) -> tuple[int, int]:
        both = list(map(min, candidate, wanted))
        return sum(map(mul, both, own.sizes)), sum(both)

    def distance(candidate: Counts) -> tuple[int, ...]:
        slices, instances = kept(candidate)
        strange = sum(count > 0 and not asked for count, asked in zip(candidate, wanted, strict=True))
        compute = sum(profile.compute_slices * count for profile, count in zip(own.profiles, candidate, strict=True))
        return -slices, -instances, strange, sum(candidate) - instances, -compute

    # Every legal part of the wanted layout lies within a maximal one, so the largest parts are found without a search.
    parts = {tuple(map(min, full, wanted)) for full in own.maximal}
    most = max(map(kept, parts), default=(0, 0))
    largest = {part for part in parts if any(part) and kept(part) == most}
    candidates = sorted(largest.union(own.maximal), reverse=True)
    return tuple(own.layout(candidate) for candidate in sorted(candidates, key=distance)[:limit])


def _over_count(limit: Limit, total: int) -> str:
    return f"a card holds at most {limit.total} {limit.noun}; this layout has {total}"


def _over_take(own: CardSolver, counts: Counts, limit: Limit) -> str:
    """Return which profiles take how much of a limit: those with the largest instances first, until too little is left."""
    takers = [index for index, weight in enumerate(limit.weights) if weight and counts[index]]
    takers.sort(key=lambda index: -limit.weights[index])
    sums = list(accumulate(counts[index] * limit.weights[index] for index in takers))
    served = sum(total <= limit.total for total in sums)
    used = sums[served - 1] if served else 0
    items = [(own.profiles[index].name, counts[index]) for index in takers]
    return _shortage(limit, items[:served], items[served:], used, sums[served] - used)


def _shortage(limit: Limit, served: Sequence[Item], rest: Sequence[Item], used: int, need: int) -> str:
    """Return the sentence: `served` take `used` of the limit, too little is left for `rest`, whose first needs `need`."""
    left = limit.total - used
    if not served:
        return f"{_take(rest[:1], 'need')} {_amount(need, limit.noun)}; a card has {_word(limit.total)}"
    if not left:
        all_of_it = f"the card's only {limit.noun}" if limit.total == 1 else f"all {_amount(limit.total, limit.noun)}"
        return f"{_take(served, 'take')} {all_of_it}; nothing is left for {join_words(map(_item, rest))}"
    taken = f"{_take(served, 'take')} {_word(used)} of the {_amount(limit.total, limit.noun)}"
    return f"{taken}; {_take(rest[:1], 'need')} {_word(need)}, and only {_word(left)} {'is' if left == 1 else 'are'} left"


def _no_placement(own: CardSolver, counts: Counts) -> str:
    """Return the sentence for a layout within the limits but without a placement: names the first profile without room."""
    present = [index for index, count in enumerate(counts) if count]
    for index in present:
        if not own.shapes[index]:
            return f"no placement of {own.profiles[index].name} is known"
    # Some profile must not fit, because the layout is not legal.
    steps = [own.grid.steps[own.shape_of[index]] for index in present]
    multisets = list(accumulate((counts[index] * step for index, step in zip(present, steps, strict=True)), initial=0))
    first = next(number for number in range(len(present)) if multisets[number + 1] not in own.grid.multisets)
    wanted = counts[present[first]]
    possible = max(number for number in range(wanted) if multisets[first] + number * steps[first] in own.grid.multisets)
    name = own.profiles[present[first]].name
    starts = join_words(_starts(own, index) for index in present[: first + 1])
    beside = [(own.profiles[index].name, counts[index]) for index in present[:first]]
    where = f"beside {join_words(map(_item, beside))} there" if beside else "there"
    room = f"room for {_word(possible)} {name}, not {_word(wanted)}" if possible else f"no room for {name}"
    return f"no placement: {starts}; {where} is {room}"


def _starts(own: CardSolver, index: int) -> str:
    starts = sorted({start for start, _ in own.shapes[index]})
    is_run = len(starts) > 2 and starts[-1] - starts[0] == len(starts) - 1
    where = f"{starts[0]} to {starts[-1]}" if is_run else join_words(map(str, starts), "or")
    return f"{own.profiles[index].name} can only start at slice {where}"


def _take(items: Sequence[Item], verb: str) -> str:
    is_one = sum(count for _, count in items) == 1
    return f"{join_words(map(_item, items))} {verb}{'s' if is_one else ''}"


def _item(item: Item) -> str:
    name, count = item
    return name if count == 1 else f"{_word(count)} {name}"


def _amount(number: int, noun: str) -> str:
    return f"{_word(number)} {noun}{'' if number == 1 else 's'}"


def _word(number: int) -> str:
    return _WORDS[number] if number < len(_WORDS) else str(number)
