"""MIG instances that are made for each claim: where they may be, and what finds no place.

The scheduler gives a claim the first free device in the order in which the driver lists them: GPU by GPU, and the places of a
profile by their start, compared as text. It leaves no room for others, so what fits depends on the order of the claims.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from gpushare.facts.catalog.cards import Geometry, MigProfile
from gpushare.facts.mig.layouts import CardSolver, solver_for
from gpushare.intent.types import Layout
from gpushare_node.contract.struct import Struct, replace


class Instance(Struct):
    """One MIG instance of one GPU at its placement, in the card's placement units."""

    profile: MigProfile
    start: int
    size: int


_Gpu = tuple[Instance, ...]


def places(geometry: Geometry, names: Sequence[str] = ()) -> tuple[Instance, ...]:
    """Return every place of these profiles on a GPU, profiles in canonical order; without names, of all without attributes."""
    chosen = [one for one in solver_for(geometry).profiles if (one.name in names if names else not one.has_attributes)]
    return tuple(
        Instance(profile=profile, start=start, size=size)
        for profile in chosen
        for start, size in sorted({(place.start, place.size) for place in profile.placements})
    )


def at_once(geometry: Geometry, names: Sequence[str]) -> tuple[Layout, ...]:
    """Return the sets of instances of these profiles to which none can be added on one GPU, those of larger profiles first."""
    own = CardSolver(replace(geometry, profiles=tuple(one for one in geometry.profiles if one.name in names)))
    return tuple(own.layout(counts) for counts in own.maximal)


def unplaced(geometry: Geometry, claims: Layout, gpus: int) -> int:
    """Return how many of the claims find no place on so many empty GPUs, if those of each profile come before the next."""
    own, left_out = solver_for(geometry), 0
    runs: list[tuple[_Gpu, int]] = [((), gpus)]
    for name, number in claims:
        wanted = number
        filled: list[tuple[_Gpu, int]] = []
        for gpu, count in runs:
            steps = list(_fill(own, gpu, places(geometry, (name,)), wanted))
            whole = min(count, wanted // (len(steps) - 1)) if len(steps) > 1 else 0
            rest = min(wanted - whole * (len(steps) - 1), len(steps) - 1) if whole < count else 0
            filled += [(steps[-1], whole), (steps[rest], int(whole < count)), (gpu, count - whole - 1)]
            wanted -= whole * (len(steps) - 1) + rest
        runs = [(gpu, count) for gpu, count in filled if count > 0]
        left_out += wanted
    return left_out


def _fill(own: CardSolver, gpu: _Gpu, free: tuple[Instance, ...], most: int) -> Iterator[_Gpu]:
    """Yield the GPU as it is, then with one more instance each time, up to `most` of them."""
    yield gpu
    for place in sorted(free, key=lambda one: str(one.start)):
        more = (*gpu, place)
        apart = all(one.start + one.size <= place.start or place.start + place.size <= one.start for one in gpu)
        if most > 0 and apart and own.is_legal(Counter(one.profile.name for one in more).items()):
            gpu, most = more, most - 1
            yield gpu
