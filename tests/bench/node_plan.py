"""The node's partition plan: its time, and the instances it destroys beside a tool that clears a GPU before it fills it."""

import statistics
import time
from collections.abc import Iterator
from itertools import islice

from gpushare_node.contract.policy import Policy
from gpushare_node.partition import plan
from gpushare_node.partition.operations import DestroyInstance
from gpushare_node.partition.state import NodeGpus
from tests.bench.history import Line, tell
from tests.compiler.facts.mig import known_cards
from tests.node.partition import builders
from tests.node.partition.layout_pairs import Deck, Pair

ROUNDS = 21
GPUS = 16


def node_of(pairs: list[Pair]) -> tuple[NodeGpus, Policy]:
    """A node with a GPU for each pair."""
    gpus = [builders.gpu(pair.state.gpus[0].mig, index) for index, pair in enumerate(pairs)]
    return builders.state(*gpus), builders.policy(*(pair.policy.gpus[0].instances for pair in pairs))


def milliseconds(state: NodeGpus, policy: Policy) -> float:
    """Median time of one plan for the whole node."""
    seconds = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        plan(state, policy)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds) * 1000


def destroyed(deck: Deck, every: int) -> tuple[int, int, int]:
    """Over pairs of what stands and what is wanted: instances that go, all instances that stood, and the number of pairs.

    A pair that is as wanted counts nothing on either side: tools that clear a GPU look first, too.
    """
    ours = everything = number = 0
    for pair in deck.pairs(every):
        planned = plan(pair.state, pair.policy)
        if planned.operations:
            ours += sum(isinstance(operation, DestroyInstance) for operation in planned.operations)
            everything += len(builders.mig_of(pair.state).instances)
            number += 1
    return ours, everything, number


def lines() -> Iterator[Line]:
    """The figures."""
    deck = Deck(known_cards.A100)
    different = list(islice(deck.pairs(len(deck.placed) * len(deck.ways) // GPUS), GPUS))
    slowest = max(deck.pairs(100), key=lambda pair: milliseconds(pair.state, pair.policy))
    yield Line(
        f"node plan, {GPUS} A100 with {GPUS} different changes: {milliseconds(*node_of(different)):.2f} ms; "
        f"with {GPUS} times the slowest of all: {milliseconds(*node_of([slowest] * GPUS)):.2f} ms (at most 20)"
    )
    ours, everything, number = destroyed(deck, 7)
    yield Line(
        f"node plan, {number} changes of an A100: {ours / number:.2f} instances destroyed each, where clearing first "
        f"destroys {everything / number:.2f}; ratio {ours / everything:.2f}",
        {"node_plan.destroyed": ours / everything},
    )


if __name__ == "__main__":
    tell(lines())
