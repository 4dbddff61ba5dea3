"""How many nodes a demand needs, if a GPU is divided in a given way. Exact; knows neither modes nor layouts.

Every user asks for the smallest share that provides what it needs, as `simulation.choice` has it: a container requests one
resource, and gets no share of another one that happens to be free.
"""

from collections import Counter
from collections.abc import Sequence

from gpushare.modes.demand import Need

Shares = tuple[tuple[int, int], ...]
"""(bytes that one user may use, number of shares) of one node, larger devices first: the last of equal bytes is smallest."""


def _asked(shares: Sequence[tuple[int, int]], memory_bytes: int) -> int | None:
    """Return the place of the share that a user asks for; None if none provides as much."""
    large = [(provided, -place) for place, (provided, _) in enumerate(shares) if provided >= memory_bytes]
    return -min(large)[1] if large else None


def per_node(shares: Shares, memory_bytes: int) -> int:
    """Return how many shares a node has for users who need so much."""
    place = _asked(shares, memory_bytes)
    return 0 if place is None else shares[place][1]


def nodes_for(shares: Shares, needs: tuple[Need, ...]) -> int | None:
    """Return how many nodes all users need; None if no share provides what one of them needs."""
    users = Counter[int]()
    for need in needs:
        place = _asked(shares, need.memory_bytes)
        if place is None:
            return None
        users[place] += need.users or 0
    return max(-(-number // shares[place][1]) for place, number in users.items())
