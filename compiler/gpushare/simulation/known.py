"""What a search knows before it begins: the pools of the intent and what they offer, the pods and who may serve them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpushare import modes
from gpushare.bundle.lock import EMPTY
from gpushare.catalog.cards import Catalog
from gpushare.core.prices import Price
from gpushare.intent.types import Pool
from gpushare.modes.demand import FaultIsolation, MemoryIsolation
from gpushare.resolved.plan import Plan, PoolPlan, resolve
from gpushare.simulation import counting, supply
from gpushare.simulation.counting import EPSILON, Item, PodKind
from gpushare.simulation.divisions import Division, Sizes, divisions
from gpushare.simulation.engine import Settings
from gpushare.simulation.supply import PoolSupply, Supply
from gpushare.workload.requests import Workload
from gpushare_node.contract.struct import Struct, replace


class Constraints(Struct):
    """What a search is held to.

    `in_hardware`: only what isolates memory in hardware. `max_pools`: into how many pools one pool is split at most. `budget`:
    how many pods the engine places in the search of pools that share pods.
    """

    in_hardware: bool = False
    max_pools: int = 4
    budget: int = 100_000


UNCONSTRAINED = Constraints()


class Known:
    """What all parts of a search share: the intent's pools and what they offer, the pods and their kinds."""

    def __init__(
        self, plan: Plan, prices: Mapping[str, Price], workload: Workload, settings: Settings, constraints: Constraints
    ) -> None:
        self.plan, self.prices, self.workload, self.settings, self.constraints = plan, prices, workload, settings, constraints
        self.pools = {pool.name: pool for pool in plan.pools}
        self._catalog = Catalog(own={pool.card.id: pool.card for pool in plan.pools})
        self._offered = {pool.name: self.offered(_written(pool)) for pool in self.pools.values()}
        self.kinds = tuple(counting.kind_of(pod, self._offered.values()) for pod in workload.pods)
        self.unserved = sum(not kind.origins for kind in self.kinds)
        self.limits = {name: pool.nodes for name, pool in self.pools.items()}

    def supply(self, pools: tuple[Pool, ...], prices: Mapping[str, Price]) -> Supply:
        """Return what an intent with these pools offers."""
        return supply.of(resolve(replace(self.plan.intent, pools=pools, quotas=()), self._catalog, EMPTY), prices)

    def limit_cost(self, items: Iterable[Item]) -> float:
        """Return what all nodes of the items' pools cost, and a bit; 0 if their number is not known."""
        costs = {item.origin: item.cost for item in items}
        limits = [self.limits[origin] for origin in costs]
        return 0.0 if None in limits else sum(costs[origin] * (self.limits[origin] or 0) for origin in costs) + 2 * EPSILON

    def offered(self, pool: Pool) -> PoolSupply:
        """Return what a pool would offer, as a compile of it says, with as many nodes as are needed."""
        return replace(self.supply((pool,), self.prices).pools[0], nodes=None)

    def components(self) -> list[tuple[str, ...]]:
        """Return the pools that share pods, together: each component can be searched by itself."""
        together: dict[str, set[str]] = {name: {name} for name in self.pools}
        for kind in set(self.kinds):
            merged = set().union(*(together[name] for name in kind.origins))
            together.update(dict.fromkeys(merged, merged))
        wanted = {name for kind in self.kinds for name in kind.origins}
        return sorted({tuple(sorted(names)) for name, names in together.items() if name in wanted})

    def items(self, origins: Sequence[str], kinds: Iterable[PodKind]) -> tuple[list[Item], bool]:
        """Return the ways to divide each of the pools, the present one first, and whether these are all of them."""
        listed = list(kinds)
        sizes = Sizes(
            memory_bytes=tuple(sorted({kind.memory_bytes for kind in listed if kind.memory_bytes is not None})),
            milli=tuple(sorted({kind.milli for kind in listed if kind.milli is not None})),
        )
        found, is_complete = [], True
        for origin in origins:
            of_plan = self.pools[origin]
            present = _written(of_plan)
            made = divisions(present, of_plan.card, sizes, self._part, in_hardware=self.constraints.in_hardware)
            is_complete &= made.is_complete
            variant = modes.of(present).variant
            if not self.constraints.in_hardware or variant.memory is MemoryIsolation.HARDWARE:
                found.append(self._item(origin, Division(variant=variant, pool=present), is_current=True))
            found += [self._item(origin, each, is_current=False) for each in made.found if each.pool != present]
        return found, is_complete

    def _part(self, pool: Pool) -> int:
        return self.offered(pool).devices[0].milli

    def _item(self, origin: str, division: Division, *, is_current: bool) -> Item:
        offered, price = self.offered(division.pool), self.prices.get(origin)
        isolation = (
            list(MemoryIsolation).index(division.variant.memory),
            list(FaultIsolation).index(division.variant.faults),
        )
        return Item(
            origin=origin,
            is_current=is_current,
            division=division,
            supply=offered,
            cost=float(division.pool.gpus_per_node) * (price.per_hour if price else 1.0),
            slots=counting.slots_of(offered),
            isolation=isolation,
        )

    def assumed(self) -> Iterator[str]:
        """Yield what the search takes for granted."""
        yield "all GPUs of a node are divided alike"
        if self.plan.quotas:
            yield "no quotas: they count the shares of the present layouts"
        used = {name for kind in self.kinds for name in kind.origins}
        yield from (f"pool {pool.name} is left out: no pod may use it" for pool in self.plan.pools if pool.name not in used)


def _written(pool: PoolPlan) -> Pool:
    """Return the pool with the layout to which its goal is resolved."""
    own = pool.pool
    if pool.layout_of_goal is None:
        return own
    return replace(own, sharing=replace(own.sharing, wanted=pool.layout_of_goal))
