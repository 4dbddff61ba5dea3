"""What a compile costs grows with the number of pools, up to as many as gpushare is tested with."""

from functools import partial

from gpushare.rules.pools import MOST_POOLS
from tests.bench.intents import many_pools
from tests.compiler.resolved.test_speed import NODES, compiled
from tests.support.costs import grows_in_line


def test_the_cost_grows_with_the_number_of_pools() -> None:
    assert grows_in_line(lambda pools: partial(compiled, many_pools(pools, NODES).encode()), MOST_POOLS)
