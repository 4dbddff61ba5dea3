"""Which layouts, replicas and numbers of nodes serve a workload at least cost.

Each pool of the intent keeps its card, its nodes and its namespaces, and may become several pools that divide them differently.
What a candidate costs is what the engine says; bounds only decide which candidates it is asked about, and in which order. So
that the same search gives the same answer everywhere, its budget counts evaluations, not seconds.
"""

from collections.abc import Iterator, Mapping, Sequence

from gpushare.core.prices import Price, disagreement
from gpushare.modes.demand import FaultIsolation, MemoryIsolation
from gpushare.resolved.plan import Plan
from gpushare.simulation.engine import Settings
from gpushare.simulation.found import Candidate, Found
from gpushare.simulation.known import UNCONSTRAINED, Constraints, Known
from gpushare.simulation.part import Part
from gpushare.workload.requests import Workload

MAX_CANDIDATES = 10
"""How many candidates an answer has."""

_USUAL = Settings()


def search(
    plan: Plan,
    workload: Workload,
    prices: Mapping[str, Price],
    settings: Settings = _USUAL,
    constraints: Constraints = UNCONSTRAINED,
) -> Found:
    """Return the best ways to serve the workload with the cards of the plan.

    `prices` are by pool; unless all pools have one, the GPUs count. A pool of known size gets no more nodes than it has.
    """
    known_prices = [prices.get(pool.name) for pool in plan.pools]
    has_prices = all(price and price.per_hour for price in known_prices) and not disagreement(prices.values())
    known = Known(plan, prices if has_prices else {}, workload, settings, constraints)
    parts = [Part(known, origins) for origins in known.components()]
    answers = [part.answer() for part in parts]
    currency = next((price.currency for price in prices.values()), "") if has_prices else ""
    return Found(
        candidates=tuple(sorted(_joined(answers), key=lambda one: one.rank)[:MAX_CANDIDATES]),
        lower_bound=sum(part.lower_bound for part in parts),
        is_exact=all(part.is_exact for part in parts),
        evaluations=sum(part.evaluations for part in parts),
        unserved=known.unserved + sum(part.unserved for part in parts),
        has_prices=has_prices,
        currency=currency,
        assumed=tuple(known.assumed()),
    )


def _joined(answers: Sequence[Sequence[Candidate]]) -> Iterator[Candidate]:
    """Yield the best answers of all parts together, and what differs from it in one part."""
    if not answers or not all(answers):
        return
    yield _together([each[0] for each in answers])
    for number, each in enumerate(answers):
        for other in each[1:]:
            yield _together([other if place == number else best[0] for place, best in enumerate(answers)])


def _together(parts: Sequence[Candidate]) -> Candidate:
    memory, faults = list(MemoryIsolation), list(FaultIsolation)
    stranded = [part.stranded_mib for part in parts]
    return Candidate(
        choices=tuple(choice for part in parts for choice in part.choices),
        cost=sum(part.cost for part in parts),
        gpus=sum(part.gpus for part in parts),
        nodes=sum(part.nodes for part in parts),
        pending=sum(part.pending for part in parts),
        waited_seconds=sum(part.waited_seconds for part in parts),
        stranded_mib=None if None in stranded else sum(number or 0 for number in stranded),
        memory=max((part.memory for part in parts), key=memory.index),
        faults=max((part.faults for part in parts), key=faults.index),
    )
