"""What a division of a card must hold, the variants in which modes divide it, and how many nodes a demand then needs.

Every user asks for the smallest share that provides what it needs, as `simulation.choice` has it: a container requests one
resource, and gets no share of another one that happens to be free.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from gpushare import vendors
from gpushare.core.prices import Price
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import mib
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import Sharing
from gpushare_node.contract.struct import Struct

MAX_REPLICAS = 1024
"""How many replicas an intent may ask for (schemas/intent.v1.json)."""

MAX_SIZES = 4
"""How many different sizes one demand may have: the search tries every size on every profile of every layout."""

UNKNOWN_MEMORY = "the memory of the card is not known"


class MemoryIsolation(StrEnum):
    """What keeps a container off the memory of others: `hardware`, or the `cap` to which the node runtime holds it."""

    HARDWARE = "hardware"
    CAP = "cap"


class FaultIsolation(StrEnum):
    """Whom a GPU fault of a container can end: no other (`hardware`), others if the device fails (`process`), all (`none`)."""

    HARDWARE = "hardware"
    PROCESS = "process"
    NONE = "none"


class Need(Struct):
    """`users` containers that need `memory_bytes` each. `users` None: as many as fit."""

    memory_bytes: int
    users: int | None = None

    @property
    def memory_mib(self) -> int:
        """The memory in MiB, rounded up: caps are whole MiB."""
        return -(-self.memory_bytes // MIB)


class Demand(Struct):
    """What must fit on nodes with `gpus_per_node` GPUs of one card. `nodes` None: as many as are needed.

    `needs` have different sizes, the largest first; only a single one may have unknown users, and then `nodes` is known.
    `in_hardware`: only modes that isolate memory in hardware are wanted. `described` is the card's entry of `spec.cards`, if
    the catalogue lacks it; `price` that of an hour of one GPU, if it is known.
    """

    card: Card
    described: Mapping[str, Any] | None = None
    needs: tuple[Need, ...]
    gpus_per_node: int = 1
    nodes: int | None = None
    in_hardware: bool = False
    price: Price | None = None


class Variant(Struct):
    """One way of sharing a card: a mode, with or without replicas, and what it isolates.

    `divide` returns what can serve a demand, or why nothing can; `vendors` are those whose cards it divides.
    """

    word: str
    divide: Callable[[Demand], list[Sharing] | str]
    memory: MemoryIsolation
    faults: FaultIsolation
    vendors: frozenset[str] = frozenset({"nvidia"})

    def ways(self, demand: Demand) -> list[Sharing] | str:
        """Return what can serve a demand, or why nothing can, for a card of any vendor."""
        if demand.card.vendor not in self.vendors:
            return f"{vendors.of(demand.card).name} has no {self.word}"
        return self.divide(demand)


def too_small(what: str, usable_mib: int, need: Need) -> str:
    """Return that the largest share is smaller than the need."""
    return f"{what} has {mib(max(usable_mib, 0))} for a user, less than {show_bytes(need.memory_bytes)}"


def most_caps(memory_mib: int, need: Need) -> int:
    """Return into how many equal caps of whole MiB the memory can be divided, if each is at least the need."""
    return min(max(memory_mib, 0) // need.memory_mib, MAX_REPLICAS)


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
