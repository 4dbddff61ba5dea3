"""The MIG solver against plain recursion over placements, in one run; every round begins without tables."""

import statistics
import time
from collections.abc import Callable, Iterator, Mapping

from gpushare.facts import mig
from gpushare.facts.catalog.cards import Geometry
from gpushare.facts.mig.grid import grid
from gpushare.intent.types import Layout
from gpushare_node.contract.struct import replace
from tests.bench.history import Line, tell
from tests.compiler.facts.mig import known_cards, reference_solver
from tests.compiler.facts.mig.test_legality import multisets

ROUNDS = 7
POOLS = 1000
BRUTE_POOLS = 20
CARDS = (known_cards.A100, "a30", "h100-sxm5-80gb", "b200-180gb", "rtx-pro-6000-server")

Deck = Mapping[str, Geometry]
"""Card id → geometry."""


def median_ms(job: Callable[[Deck], object]) -> float:
    """Milliseconds of a job that finds nothing prepared: geometries it has never seen, and no grids."""
    seconds = []
    for _ in range(ROUNDS):
        deck = {card: replace(known_cards.geometry(card)) for card in CARDS}
        grid.cache_clear()
        start = time.perf_counter()
        job(deck)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1000


def brute_judge(geometry: Geometry, wanted: list[Layout]) -> int:
    """How many of the layouts are legal, by listing everything that is."""
    legal = {reference_solver.multiset(placed) for placed in reference_solver.placed_sets(geometry)}
    return sum(frozenset(layout) in legal for layout in wanted)


def brute_place(geometry: Geometry, layout: Layout) -> reference_solver.Placed:
    """Some way to place a layout, by listing everything that its profiles allow."""
    names = {name for name, _ in layout}
    every = reference_solver.placed_sets(geometry, lambda profile: profile.name in names)
    return next(placed for placed in every if reference_solver.multiset(placed) == frozenset(layout))


def lines() -> Iterator[Line]:
    """The figures."""
    wanted = list(multisets(known_cards.geometry(known_cards.A100)))
    ours = median_ms(lambda deck: sum(mig.fits(deck[known_cards.A100], layout) for layout in wanted))
    plain = median_ms(lambda deck: brute_judge(deck[known_cards.A100], wanted))
    yield Line(
        f"solver, {len(wanted) - 1} layouts of an A100 judged: {ours:.1f} ms, plain recursion {plain:.1f} ms, "
        f"ratio {ours / plain:.2f}",
        {"solver.judged": ours / plain},
    )

    choices = [(card, layout) for card in CARDS for layout in mig.maximal_layouts(known_cards.geometry(card))]
    pools = [choices[number % len(choices)] for number in range(POOLS)]
    some = pools[:: POOLS // BRUTE_POOLS]
    ours = median_ms(lambda deck: [mig.place(deck[card], layout) for card, layout in pools])
    plain = median_ms(lambda deck: [brute_place(deck[card], layout) for card, layout in some]) * POOLS / len(some)
    yield Line(
        f"solver, {POOLS} MIG pools on {len(CARDS)} cards placed: {ours:.1f} ms, plain recursion {plain:.0f} ms "
        f"(from {len(some)} pools), ratio {ours / plain:.4f}",
        {"solver.placed": ours / plain},
    )

    layout = (("3g.20gb", 1), ("2g.10gb", 1), ("1g.5gb", 2))
    median = median_ms(lambda deck: mig.place(deck[known_cards.A100], layout))
    yield Line(f"solver, first layout of a process placed: {median:.2f} ms")


if __name__ == "__main__":
    tell(lines())
