"""What an hour of each pool's GPUs costs. Pure."""

from collections.abc import Mapping

from gpushare.core.prices import Price
from gpushare.resolved.plan import Plan
from gpushare_node.contract.struct import Struct


class Costs(Struct):
    """(pool, cost of an hour of all its GPUs) pairs; None: its price or number of nodes is not known. Empty without prices."""

    currency: str
    pools: tuple[tuple[str, float | None], ...]

    @property
    def known(self) -> float:
        """The sum of what is known."""
        return sum(cost for _, cost in self.pools if cost is not None)

    def of(self, pool: str) -> float | None:
        """Return the cost of a pool."""
        return dict(self.pools).get(pool)


def of_plan(plan: Plan, prices: Mapping[str, Price]) -> Costs:
    """Return the costs of a plan. `prices` are by pool, in one currency."""
    known = {pool.name: prices.get(pool.name) for pool in plan.every_pool}
    currency = next((price.currency for price in known.values() if price), None)
    if currency is None:
        return Costs(currency="", pools=())
    gpus = {pool.name: None if pool.nodes is None else pool.nodes * pool.pool.gpus_per_node for pool in plan.every_pool}
    costs = tuple((name, _product(gpus[name], price)) for name, price in known.items())
    return Costs(currency=currency, pools=costs)


def _product(gpus: int | None, price: Price | None) -> float | None:
    return None if gpus is None or price is None else gpus * price.per_hour
