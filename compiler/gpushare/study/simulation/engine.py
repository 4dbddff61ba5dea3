"""Places a workload as the cluster does: events in time order, each pod on the best node with room, and no pod moves later.

Pods that end at a second free their shares before any pod starts at it. Then the pods that wait are tried in the order of
their arrival, and after them those that arrive: a pod that fits may overtake an earlier one that does not.
"""

from collections import Counter, deque
from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from heapq import heappop, heappush
from typing import NamedTuple

from gpushare.core.units import total
from gpushare.core.wording import join_first
from gpushare.study.simulation import outcome
from gpushare.study.simulation.choice import Chooser, PodTarget, QuotaLimit, QuotaWish, Source, Waiting, Wish
from gpushare.study.simulation.outcome import PodPlacement, SimulationOutcome
from gpushare.study.simulation.pool_run import PoolRun
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import Workload
from gpushare_node.contract.struct import Struct


class Scoring(StrEnum):
    """Which node the scheduler takes: with most of the resource free, or with least."""

    LEAST_ALLOCATED = "least-allocated"
    MOST_ALLOCATED = "most-allocated"


class SimulationSettings(Struct):
    """What the plan does not say of the cluster."""

    scoring: Scoring = Scoring.LEAST_ALLOCATED


_USUAL = SimulationSettings()


def simulate(supply: Supply, workload: Workload, settings: SimulationSettings = _USUAL) -> SimulationOutcome:
    """Return what becomes of the workload."""
    return _Run(supply, workload, settings).outcome()


def placements(supply: Supply, workload: Workload, settings: SimulationSettings = _USUAL) -> tuple[PodPlacement, ...]:
    """Return what becomes of each pod, in the workload's order."""
    return tuple(_Run(supply, workload, settings).placements())


class _Held(NamedTuple):
    """What a pod holds, or held: shares of these devices of a node since `start`."""

    pool: int
    node: int
    devices: tuple[int, ...]
    start: int


class _Run:
    """One simulation. A pod is its place in the order of arrival."""

    def __init__(self, supply: Supply, workload: Workload, settings: SimulationSettings) -> None:
        self._supply, self._workload, self._scoring = supply, workload, settings.scoring
        self._order = sorted(range(len(workload.pods)), key=lambda number: workload.pods[number].arrival)
        self._pods = [workload.pods[number] for number in self._order]
        is_packing = settings.scoring is Scoring.MOST_ALLOCATED
        self._pools = [PoolRun(pool, is_packing=is_packing) for pool in supply.pools]
        self._targets: dict[int, PodTarget] = {}
        self._reasons: dict[int, str] = {}
        self._quota_used = Counter[QuotaLimit]()
        self._admitted: set[int] = set()
        self._waiting = Waiting()
        self._held: dict[int, _Held] = {}
        self._ends: list[tuple[int, int]] = []
        self._changed: dict[int, None] = {}
        self._now = self._end = 0
        self._choose()
        self._run()

    def _choose(self) -> None:
        chooser = Chooser(self._supply)
        for pod, asked in enumerate(self._pods):
            chosen = chooser.choose(asked)
            if isinstance(chosen, str):
                self._reasons[pod] = chosen
            else:
                self._targets[pod] = chosen

    def _run(self) -> None:
        arriving = deque(self._targets)
        while arriving or self._ends:
            times = [self._pods[arriving[0]].arrival] if arriving else []
            self._now = min([*times, *(end for end, _ in self._ends[:1])])
            freed: dict[Source, None] = {}
            while self._ends and self._ends[0][0] == self._now:
                freed |= dict.fromkeys(self._leave(heappop(self._ends)[1]))
            self._waiting.wake(freed, self._serve)
            while arriving and self._pods[arriving[0]].arrival == self._now:
                self._arrive(arriving.popleft())
            for pool in self._changed:
                self._pools[pool].note(self._now)
            self._changed.clear()
        for pod, wish in self._waiting.left():
            self._reasons[pod] = _reason(wish)
            self._pools[self._targets[pod].pools[0]].unplaced[_reason(wish)] += 1

    def _arrive(self, pod: int) -> None:
        if self._admit(pod) and self._place(pod):
            return
        self._count_pending(pod, 1)
        self._waiting.add(pod, self._wish(pod))

    def _serve(self, pod: int) -> bool:
        """Try a pod that waits. It may get its quota, and then wait for room, which quota does not give."""
        had_quota = pod in self._admitted
        if not self._admit(pod):
            return False
        if self._place(pod):
            self._count_pending(pod, -1)
            return True
        if not had_quota:
            self._waiting.add(pod, self._wish(pod))
        return not had_quota

    def _wish(self, pod: int) -> Wish:
        target = self._targets[pod]
        return target if pod in self._admitted else QuotaWish(budget=self._budget(pod), amount=target.amount)

    def _budget(self, pod: int) -> QuotaLimit:
        return QuotaLimit(self._pods[pod].namespace, self._targets[pod].resource)

    def _admit(self, pod: int) -> bool:
        """Take what the pod requests off its namespace's quota, as soon as the pod exists; false if too little is left."""
        if pod in self._admitted:
            return True
        budget, amount = self._budget(pod), self._targets[pod].amount
        limit = self._supply.quotas.get(budget)
        if limit is not None and self._quota_used[budget] + amount > limit:
            return False
        self._quota_used[budget] += amount
        self._admitted.add(pod)
        return True

    def _place(self, pod: int) -> bool:
        target = self._targets[pod]
        found = self._best(target)
        if found is None:
            return False
        number, node = found
        pool, asked = self._pools[number], self._pods[pod]
        taken = pool.nodes.hold(node, target.resource, target.amount)
        self._held[pod] = _Held(pool=number, node=node, devices=taken, start=self._now)
        pool.asked_bytes += pool.asks(asked, taken)
        pool.placed += 1
        pool.waited += self._now - asked.arrival
        if asked.duration is not None:
            heappush(self._ends, (self._now + asked.duration, pod))
            self._end = max(self._end, self._now + asked.duration)
        self._changed[number] = None
        return True

    def _best(self, target: PodTarget) -> tuple[int, int] | None:
        """Return pool and node that score best, ties to the first. A new node is added only if no other has room."""
        best, best_score = None, Fraction(-1)
        for number in target.pools:
            nodes = self._pools[number].nodes
            found = nodes.find(target.resource, target.amount)
            if found and len(target.pools) == 1:
                return number, found[1]
            if found:
                left = Fraction(found[0] - target.amount, nodes.per_node(target.resource))
                score = left if self._scoring is Scoring.LEAST_ALLOCATED else 1 - left
                if score > best_score:
                    best, best_score = (number, found[1]), score
        if best is None:
            growing = (number for number in target.pools if self._pools[number].nodes.can_grow)
            return next(((number, self._pools[number].nodes.touched) for number in growing), None)
        return best

    def _leave(self, pod: int) -> Iterator[Source]:
        """Take back what a pod held, and yield what is free now."""
        held, target = self._held[pod], self._targets[pod]
        pool = self._pools[held.pool]
        pool.nodes.release(held.node, target.resource, held.devices)
        pool.asked_bytes -= pool.asks(self._pods[pod], held.devices)
        for device in held.devices:
            pool.seconds[device] += self._now - held.start
        self._changed[held.pool] = None
        yield held.pool, target.resource
        if (budget := self._budget(pod)) in self._supply.quotas:
            self._quota_used[budget] -= target.amount
            yield budget

    def _count_pending(self, pod: int, by: int) -> None:
        number = self._targets[pod].pools[0]
        self._pools[number].pending += by
        self._changed[number] = None

    def outcome(self) -> SimulationOutcome:
        """Return the outcome."""
        stays = any(self._pods[pod].duration is None for pod in self._held)
        end = None if stays else self._end
        has_prices = any(pool.price for pool in self._supply.pools)
        pools = tuple(pool.outcome(end, has_prices=has_prices) for pool in self._pools)
        unserved = Counter(reason for pod, reason in self._reasons.items() if pod not in self._targets)
        return SimulationOutcome(
            pools=pools,
            unserved=dict(sorted(unserved.items())),
            bounds=outcome.bounds_of(self._supply, self._pods),
            end=end,
            currency=next((pool.price.currency for pool in self._supply.pools if pool.price), ""),
            cost=total(pool.cost for pool in pools),
            assumed=(*self._workload.assumed, *self._assumed()),
        )

    def _assumed(self) -> Iterator[str]:
        yield "CPU and memory of nodes are not simulated"
        yield f"the scheduler scores nodes by the requested resource alone, {self._scoring.value}; of equals it takes the first"
        if any(pod.resource is None for pod in self._pods):
            yield "a pod that asks for memory or a part of a GPU requests one share of the smallest kind that provides it"
        if any(pool.nodes is None for pool in self._supply.pools):
            yield "a pool without a number of nodes gets as many as needed, each when no other has room"
        if self._supply.observes:
            yield "adoption: enforce, although the intent only observes"
        if machines := self._supply.machines:
            yield f"without the pools for virtual machines, which serve no pods: {join_first(machines)}"
        if self._supply.quotas:
            yield "a pod that waits for room counts against its namespace's quota; one that quota refuses is tried again"

    def placements(self) -> Iterator[PodPlacement]:
        """Yield what became of each pod, in the workload's order."""
        for pod in sorted(range(len(self._pods)), key=self._order.__getitem__):
            held, target = self._held.get(pod), self._targets.get(pod)
            number = held.pool if held else target.pools[0] if target else None
            yield PodPlacement(
                pod=self._order[pod],
                pool="" if number is None else self._pools[number].supply.name,
                resource=target.resource if target else "",
                node=held.node if held else None,
                devices=held.devices if held else (),
                start=held.start if held else None,
                reason=self._reasons.get(pod, ""),
            )


def _reason(wish: Wish) -> str:
    if isinstance(wish, QuotaWish):
        return f"the quota of namespace {wish.budget.namespace} for {wish.budget.resource} is used up"
    return f"no node has {wish.amount} {wish.resource} free"
