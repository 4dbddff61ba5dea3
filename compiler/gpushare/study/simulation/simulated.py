"""What a call simulated: Simulated, one intent with its outcome, and Simulations, all intents of the call. Plain values."""

from gpushare.core.units import total
from gpushare.study.simulation.outcome import Outcome, PoolOutcome
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import Workload
from gpushare_node.contract.struct import Struct


class Simulated(Struct):
    """One intent. `file` is as the user names it, `name` the cluster's."""

    file: str
    name: str
    supply: Supply
    outcome: Outcome

    def gpus(self, pool: PoolOutcome) -> int:
        """Return the GPUs of a pool's nodes."""
        return pool.nodes * next(one.gpus_per_node for one in self.supply.pools if one.name == pool.name)

    @property
    def all_gpus(self) -> int:
        """The GPUs of all pools."""
        return sum(map(self.gpus, self.outcome.pools))

    @property
    def nodes(self) -> int:
        """The nodes of all pools."""
        return sum(pool.nodes for pool in self.outcome.pools)

    @property
    def placed(self) -> int:
        """The pods that ran."""
        return sum(pool.placed for pool in self.outcome.pools)

    @property
    def never_ran(self) -> int:
        """The pods that never ran."""
        pending = sum(sum(pool.pending.values()) for pool in self.outcome.pools)
        return pending + sum(self.outcome.unserved.values())

    @property
    def waited_seconds(self) -> int:
        """The time that pods which ran had waited, all together."""
        return sum(pool.waited_seconds for pool in self.outcome.pools)

    @property
    def mean_wait(self) -> int:
        """How many seconds a pod that ran had waited on average, rounded up."""
        return -(-self.waited_seconds // max(self.placed, 1))

    @property
    def stranded_mib(self) -> int | None:
        """The stranded memory of all pools, each at its peak; None if that of one is not known."""
        return total(pool.stranded_mib for pool in self.outcome.pools)

    @property
    def gpu_hours(self) -> float | None:
        """The GPU-hours of all pools; None if the workload has no end."""
        return total(pool.gpu_hours for pool in self.outcome.pools)


class Simulations(Struct):
    """The intents of one call, the first of them with which the others are compared. `scoring` is the scheduler's."""

    workload: Workload
    scoring: str
    intents: tuple[Simulated, ...]
