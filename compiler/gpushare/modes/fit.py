"""How many nodes a demand needs, if a GPU is divided in a given way. Exact; knows neither modes nor layouts.

A user who needs less fits wherever a user who needs more does. So all users fit if and only if, for each size, the shares
of at least that size are as many as the users who need at least that size.
"""

from collections.abc import Iterable
from itertools import accumulate

from gpushare.modes.demand import Need

Shares = tuple[tuple[int, int], ...]
"""(bytes that one user may use, number of shares) of one node."""


def per_node(shares: Iterable[tuple[int, int]], memory_bytes: int) -> int:
    """Return how many shares of a node provide at least `memory_bytes`."""
    return sum(number for provided, number in shares if provided >= memory_bytes)


def nodes_for(shares: Shares, needs: tuple[Need, ...]) -> int | None:
    """Return how many nodes all users need; None if no number of nodes has room for them. `needs`: the largest first."""
    totals = accumulate(need.users or 0 for need in needs)
    nodes = 0
    for need, users in zip(needs, totals, strict=True):
        offered = per_node(shares, need.memory_bytes)
        if not offered:
            return None
        nodes = max(nodes, -(-users // offered))
    return nodes
