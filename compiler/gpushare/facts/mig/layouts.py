"""The legal layouts of one card: CardSolver turns a geometry into limits that a layout is checked against.

A layout is legal if its instances can be placed on the grid and no limit is exceeded. Every subset of a legal layout is legal
too: all searches here depend on it. Owns this rule, the sentence on what breaks it, and the legal layouts nearest to an illegal
one; it places nothing.

A goal such as `most-instances` selects the best of the card's legal layouts by a fixed order, so the result is exact and
deterministic. Only profiles without attributes are considered. Sizes in bytes come from the caller: what is usable depends on
the pool's reserve.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from itertools import accumulate, islice
from operator import add, le, mul
from typing import assert_never

from gpushare.core.wording import join_words
from gpushare.facts.catalog.cards import Geometry, MigProfile
from gpushare.facts.mig.grid import Shape, TooManyError, grid
from gpushare.intent.types import Balanced, Goal, Instances, Layout, MemoryEach, MostInstances
from gpushare_node.contract.struct import Struct, replace

Counts = tuple[int, ...]
"""How many of each profile, in the solver's own order."""

ENGINE_NOUNS = {"decoders": "decoder", "encoders": "encoder", "jpeg": "JPEG engine", "ofa": "optical flow engine"}
"""Engines that instances compete for, by their names in `Engines`. Copy engines are shared: no card has a total."""

_SOLVERS: dict[int, "CardSolver"] = {}
_MAX_BOARDS = 256

MAX_LAYOUTS = 2_000
"""How many legal layouts a card may have, so that a search can go through all of them. Known cards have 128."""


class Limit(Struct):
    """No more than `total` of something on one card. `weights` is what an instance of each profile takes, in solver order.

    `counts_instances`: the limit counts instances, and `noun` follows `total`; otherwise `noun` is the singular of something
    that instances take.
    """

    noun: str
    total: int
    weights: tuple[int, ...]
    counts_instances: bool = False

    def taken_by(self, counts: Counts) -> int:
        """Return how much a layout takes."""
        return sum(map(mul, self.weights, counts))


class CardSolver:
    """The solver of one geometry. `profiles` are in canonical order: more compute, then more memory, then by name."""

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.profiles = tuple(sorted(geometry.profiles, key=_larger_first))
        self.shapes = tuple(_shape(profile, geometry.units) for profile in self.profiles)
        self.sizes = tuple(max((size for _, size in shape), default=0) for shape in self.shapes)
        distinct = tuple(dict.fromkeys(self.shapes))
        self.shape_of = tuple(distinct.index(shape) for shape in self.shapes)
        self.grid = grid(geometry.units, distinct)
        self.limits = tuple(_limits(geometry, self.profiles, self.shapes))
        self._index = {profile.name: index for index, profile in enumerate(self.profiles)}
        self._steps = tuple(self.grid.steps[shape] for shape in self.shape_of)
        self._totals = tuple(limit.total for limit in self.limits)
        self._takes = tuple(zip(*(limit.weights for limit in self.limits), strict=True))
        """Of each profile what an instance takes, by limit."""

    def is_legal(self, layout: Iterable[tuple[str, int]]) -> bool:
        """Whether the layout's instances fit on one card together. Unknown profiles do not."""
        wanted = list(layout)
        if any(name not in self._index for name, _ in wanted) or sum(count for _, count in wanted) > self.geometry.units:
            return False
        counts = self.counts(wanted)
        return self.multiset(counts) in self.grid.multisets and self._holds(limit.taken_by(counts) for limit in self.limits)

    def counts(self, layout: Iterable[tuple[str, int]]) -> Counts:
        """Return the layout as counts, without profiles that the card does not have."""
        found = [0] * len(self.profiles)
        for name, count in layout:
            if name in self._index:
                found[self._index[name]] += count
        return tuple(found)

    def multiset(self, counts: Counts) -> int:
        """Return the shapes of a legal layout as the grid's integer."""
        return sum(count * step for count, step in zip(counts, self._steps, strict=True))

    def layout(self, counts: Counts) -> Layout:
        """Return the counts as a layout in canonical order."""
        return tuple((profile.name, count) for profile, count in zip(self.profiles, counts, strict=True) if count)

    @cached_property
    def legal(self) -> tuple[Counts, ...]:
        """Every legal layout except the empty one, those with more of a larger profile first."""
        return tuple(sorted((counts for counts, _ in self.walk() if any(counts)), reverse=True))

    @cached_property
    def maximal(self) -> tuple[Counts, ...]:
        """Every legal layout to which nothing can be added, those with more of a larger profile first."""
        return tuple(sorted((counts for counts, is_full in self.walk() if is_full and any(counts)), reverse=True))

    @cached_property
    def plain(self) -> "CardSolver":
        """The same card without the profiles whose names carry attributes."""
        kept = tuple(profile for profile in self.geometry.profiles if not profile.has_attributes)
        return self if len(kept) == len(self.profiles) else CardSolver(replace(self.geometry, profiles=kept))

    def _holds(self, taken: Iterable[int]) -> bool:
        return all(map(le, taken, self._totals))

    def walk(self) -> Iterator[tuple[Counts, bool]]:
        """Yield every legal layout once, each with whether nothing can be added to it."""
        multisets = self.grid.multisets
        additions = tuple(enumerate(zip(self._steps, self._takes, strict=True)))
        pending = [((0,) * len(self.profiles), 0, 0, (0,) * len(self.limits))]
        while pending:
            counts, last, multiset, taken = pending.pop()
            is_full = True
            for index, (step, takes) in additions:
                more = tuple(map(add, taken, takes))
                if multiset + step in multisets and self._holds(more):
                    is_full = False
                    if index >= last:
                        grown = (*counts[:index], counts[index] + 1, *counts[index + 1 :])
                        pending.append((grown, index, multiset + step, more))
            yield counts, is_full


def is_manageable(geometry: Geometry) -> bool:
    """Whether the card has at most MAX_LAYOUTS layouts. Callers must not use the solver of a card that has more."""
    try:
        return next(islice(solver_for(geometry).walk(), MAX_LAYOUTS + 1, None), None) is None  # the empty layout counts
    except TooManyError:
        return False


def solver_for(geometry: Geometry) -> CardSolver:
    """Return the geometry's solver, built once per object: by id, because hashing a geometry costs more than most searches."""
    known = _SOLVERS.get(id(geometry))
    if known is None:
        if len(_SOLVERS) >= _MAX_BOARDS:
            _SOLVERS.clear()
        # The solver keeps the geometry alive, so its id is not reused while the entry exists.
        known = _SOLVERS[id(geometry)] = CardSolver(geometry)
    return known


def _larger_first(profile: MigProfile) -> tuple[int, int, str]:
    return -profile.compute_slices, -max((place.size for place in profile.placements), default=0), profile.name


def _shape(profile: MigProfile, units: int) -> Shape:
    """Return the profile's places on the grid, sorted, so that profiles of the same shape are equal."""
    places = {(place.start, place.size) for place in profile.placements}
    return tuple(sorted((start, size) for start, size in places if start >= 0 < size and start + size <= units))


def _limits(geometry: Geometry, profiles: tuple[MigProfile, ...], shapes: tuple[Shape, ...]) -> Iterator[Limit]:
    """Yield the card's limits, the simplest first: `why_not` looks for a reason in this order."""
    for index, profile in enumerate(profiles):
        own = tuple(int(other == index) for other in range(len(profiles)))
        yield Limit(noun=f"of {profile.name}", total=profile.max_count, weights=own, counts_instances=True)
    smallest = tuple(min((size for _, size in shape), default=0) for shape in shapes)
    yield Limit(noun="memory slice", total=geometry.units, weights=smallest)
    is_gfx = tuple(int("+gfx" in profile.name) for profile in profiles)
    is_compute = tuple(1 - gfx for gfx in is_gfx)
    everything = (1,) * len(profiles)
    for kind, total, weights in (
        (" without +gfx", geometry.max_compute_instances, is_compute),
        (" with +gfx", geometry.max_gfx_instances, is_gfx),
        ("", geometry.max_instances if geometry.max_instances > 0 else None, everything),
    ):
        if total is not None:
            noun = f"{'instance' if total == 1 else 'instances'}{kind}"
            yield Limit(noun=noun, total=total, weights=weights, counts_instances=True)
    for field, noun in ENGINE_NOUNS.items():
        total = getattr(geometry.engine_totals, field)
        if total is not None:
            # A number that is not known cannot exceed a limit: only known numbers are summed.
            yield Limit(noun=noun, total=total, weights=tuple(getattr(profile.engines, field) or 0 for profile in profiles))


UsableBytes = Callable[[MigProfile], int | None]

NameKey = tuple[str | int, ...]

_NUMBERS = r"([0-9]+)"

_BALANCED = {7: {1: 2, 2: 1, 3: 1}, 4: {1: 2, 2: 1}}
"""Compute slices of the whole card → how many instances of each number of compute slices."""


def resolve_goal(geometry: Geometry, goal: Goal, usable_bytes: UsableBytes) -> Layout | None:
    """Return the layout that the goal requests, in canonical order; None if no layout of the card reaches it.

    `usable_bytes` returns the usable bytes of one instance, None if its memory is not known; only `memory` goals call it.
    Equally good layouts are sorted by name, with numbers in names read as numbers: `1g.5gb` comes before `1g.10gb`.
    """
    own = solver_for(geometry).plain
    match goal:
        case MostInstances():
            best = _most_without(own, frozenset())
        case Balanced():
            best = _balanced(own)
        case Instances():
            best = _exactly(own, goal.count)
        case MemoryEach():
            small = frozenset(index for index, p in enumerate(own.profiles) if (usable_bytes(p) or 0) < goal.size_bytes)
            best = _most_without(own, small)
        case _:
            assert_never(goal)
    return None if best is None else own.layout(best)


def instance_counts(geometry: Geometry) -> tuple[int, ...]:
    """Return the numbers of instances that layouts without attributes can have, ascending."""
    return tuple(sorted({sum(counts) for counts in solver_for(geometry).plain.legal}))


def _most_without(own: CardSolver, left_out: frozenset[int]) -> Counts | None:
    """Return the layout with the most instances, without the profiles at these indexes."""
    layouts = (counts for counts in own.legal if not any(counts[index] for index in left_out))
    return min(layouts, key=lambda counts: (-sum(counts), _in_name_order(own, counts)), default=None)


def _balanced(own: CardSolver) -> Counts | None:
    """Return the fixed mix for cards of seven or four slices; each size is the profile of which most fit on a card."""
    whole = max((profile.compute_slices for profile in own.profiles), default=0)
    chosen = {}
    for slices, count in _BALANCED.get(whole, {}).items():
        of_size = [profile for profile in own.profiles if profile.compute_slices == slices]
        if not of_size:
            return None
        chosen[min(of_size, key=lambda profile: (-profile.max_count, _name_key(profile.name))).name] = count
    return own.counts(chosen.items()) if chosen and own.is_legal(chosen.items()) else None


def _exactly(own: CardSolver, number: int) -> Counts | None:
    """Return the layout of `number` instances or the next possible number: the largest smallest instance, then most memory.

    Sizes are compared by compute slices, then by memory slices, which are always known; totals in catalogued memory, or in
    memory slices if that is not known of some profile. The reserve is not used: it must not change the layout.
    """
    possible = min((sum(counts) for counts in own.legal if sum(counts) >= number), default=None)
    known = [profile.memory_mib for profile in own.profiles if profile.memory_mib is not None]
    memory = known if len(known) == len(own.profiles) else own.sizes

    def key(counts: Counts) -> tuple[int, int, int, list[NameKey]]:
        present = [index for index, count in enumerate(counts) if count]
        compute, slices = min((own.profiles[index].compute_slices, own.sizes[index]) for index in present)
        total = sum(counts[index] * memory[index] for index in present)
        return -compute, -slices, -total, _in_name_order(own, counts)

    return min((counts for counts in own.legal if sum(counts) == possible), key=key, default=None)


def _in_name_order(own: CardSolver, counts: Counts) -> list[NameKey]:
    """Return the names of all instances, sorted: the sort key of layouts with the same number of instances."""
    return sorted(_name_key(profile.name) for profile, count in zip(own.profiles, counts, strict=True) for _ in range(count))


@cache
def _name_key(name: str) -> NameKey:
    parts = re.split(_NUMBERS, name)
    return tuple(int(part) if number % 2 else part for number, part in enumerate(parts))


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
        return _dot(both, own.sizes), sum(both)

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


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    return sum(map(mul, left, right))
