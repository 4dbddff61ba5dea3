"""What an hour of each pool's GPUs costs, and which part of a GPU each resource is. Pure."""

from collections.abc import Mapping

from gpushare.core.prices import Price
from gpushare.core.units import total
from gpushare.offering import modes
from gpushare.resolved.node_plan import DevicePlan
from gpushare.resolved.plan import Plan, PoolPlan
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


def parts_of_resources(pool: PoolPlan) -> Mapping[str, float | None]:
    """Return the GPUs of one share by resource, in proportion to memory, so that all shares of a GPU are one; None: not known.

    A share whose resource several GPUs divide differently is the mean of its parts of them. An instance on demand is the memory
    slices that it takes.
    """
    of_gpu: dict[int, list[DevicePlan]] = {}
    for device in pool.devices:
        of_gpu.setdefault(device.gpu, []).append(device)
    parts: dict[str, list[float | None]] = {}
    for devices in of_gpu.values():
        alike = len({device.profile for device in devices}) == 1  # these need no memory to be compared
        memory = [1 if alike else device.memory_mib for device in devices]
        whole = total(memory)
        if pool.card.mig and modes.of(pool.pool).is_on_demand:
            memory, whole = [device.size for device in devices], pool.card.mig.units
        for device, own in zip(devices, memory, strict=True):
            parts.setdefault(device.resource, []).append(own / whole if own and whole else None)
    sums = {one.name: (total(parts[one.name]), one.per_node) for one in pool.resources}
    return {name: None if gpus is None else gpus / shares for name, (gpus, shares) in sums.items()}
