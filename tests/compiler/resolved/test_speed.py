"""As many pools as gpushare is tested with, with 20,000 nodes: what a compile costs."""

from functools import partial

import yaml

from gpushare import pipeline
from gpushare.bundle.lock import EMPTY
from gpushare.core.diagnostics import is_error
from gpushare.rules.pools import MOST_POOLS
from tests.bench.intents import many_pools
from tests.support.costs import costs_below

NODES = 67
"""In each pool."""


def compiled(text: bytes) -> pipeline.Compilation:
    return pipeline.compile_intent(text, "intent.yaml", EMPTY)


def test_the_most_pools_compile_in_a_second() -> None:
    """PyYAML with libyaml reads the intent in 80 to 90 ms, and a process has a tenth of a second besides."""
    text = many_pools(MOST_POOLS, NODES).encode()
    found = compiled(text)
    assert found.plan is not None
    assert (len(found.plan.pools), [one for one in found.findings if is_error(one)]) == (MOST_POOLS, [])
    assert costs_below(10, partial(compiled, text), partial(yaml.load, text, yaml.CSafeLoader))
