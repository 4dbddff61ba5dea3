"""What a search found: Choice, Candidate and Found. Plain values; searches nothing."""

from gpushare.intent.types import Pool
from gpushare.modes.demand import FaultIsolation, MemoryIsolation, Variant
from gpushare_node.contract.struct import Struct

NODE_LABEL = "node.example.org/pool"
"""An example of a label that tells the nodes of a split pool apart, for the user to replace."""


class Choice(Struct):
    """One pool of a candidate: `pool` as an intent has it, with the number of nodes that it needs.

    `origin` is the pool of the searched intent whose nodes it has; `is_split` if others have nodes of that pool as well,
    `is_current` if it is divided as that pool is.
    """

    origin: str
    variant: Variant
    pool: Pool
    nodes: int
    is_split: bool
    is_current: bool


class Candidate(Struct):
    """Pools that serve a workload, and what the engine says of them.

    `cost` is what all their GPUs cost in an hour, or their number without prices. `pending` are pods that never ran although
    some way of sharing serves them, `waited_seconds` the sum over the others. `memory` and `faults` are what the pool with the
    weakest isolation has. `stranded_mib` is memory of GPUs in use that no pod asked for, at the peak; None: not known.
    """

    choices: tuple[Choice, ...]
    cost: float
    gpus: int
    nodes: int
    pending: int
    waited_seconds: int
    stranded_mib: int | None
    memory: MemoryIsolation
    faults: FaultIsolation

    @property
    def serves(self) -> bool:
        """Whether every pod that can be served runs when it arrives."""
        return not self.pending and not self.waited_seconds

    @property
    def rank(self) -> tuple[float, ...]:
        """What makes a candidate better, as a sort key: that it serves all, the cost, isolation, pools, stranded memory."""
        isolation = (list(MemoryIsolation).index(self.memory), list(FaultIsolation).index(self.faults))
        return (self.pending, self.waited_seconds, self.cost, *isolation, len(self.choices), self.stranded_mib or 0)


class Found(Struct):
    """The best candidates, the best first; none if nothing serves any pod.

    `lower_bound` is a cost that no candidate of the search space is below; `is_exact`: the best one costs no more than the
    least possible of that space. `evaluations` are how often the engine was asked. `has_prices`: costs are money, in
    `currency` (empty: not named), else GPUs. `unserved` are pods that no way of sharing serves.
    """

    candidates: tuple[Candidate, ...]
    lower_bound: float
    is_exact: bool
    evaluations: int
    unserved: int
    has_prices: bool
    currency: str
    assumed: tuple[str, ...]

    @property
    def best(self) -> Candidate | None:
        """The best candidate."""
        return self.candidates[0] if self.candidates else None
