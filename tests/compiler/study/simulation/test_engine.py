"""The engine finds what the plain definition finds, and keeps the rules that hold at every second."""

import random
from fractions import Fraction

import pytest

from gpushare.study.simulation import engine
from gpushare.study.simulation.engine import Scoring, SimulationSettings
from gpushare.study.simulation.outcome import PodPlacement, PoolOutcome
from gpushare.study.simulation.supply import PoolSupply, Supply
from gpushare.study.workload.requests import Workload
from gpushare_node.contract.struct import content_of
from tests.compiler.study.simulation import cases
from tests.compiler.study.simulation.oracle import Fate, Oracle
from tests.support import scale

PARTS = 10
CASES = scale.examples(5000) // PARTS


def drawn(seed: int) -> tuple[Supply, Workload, SimulationSettings]:
    chance = random.Random(seed)
    supply = cases.supply(chance)
    return supply, cases.workload(chance, supply), SimulationSettings(scoring=chance.choice(list(Scoring)))


@pytest.mark.parametrize("part", range(PARTS))
def test_brute_force_agrees(part: int) -> None:
    for seed in range(part * CASES, (part + 1) * CASES):
        supply, workload, settings = drawn(seed)
        expected = Oracle(supply, workload.pods, settings.scoring)
        found = engine.placements(supply, workload, settings)
        assert [_as_fate(one) for one in found] == [_fate(one) for one in expected.fates], seed
        for one, fate in zip(found, expected.fates, strict=True):
            assert one.reason.startswith("the quota of namespace") == (fate.requested is not None and not fate.has_quota), seed
        _check_outcome(supply, workload, settings, expected)
        _check_rules(supply, workload, found)


def _as_fate(one: PodPlacement) -> tuple[object, ...]:
    return one.pool, one.resource, one.node, one.devices, one.start, not one.reason


def _fate(fate: Fate) -> tuple[object, ...]:
    if fate.requested is None:
        return "", "", None, (), None, False
    pools, resource, _ = fate.requested
    if fate.node is None:
        return pools[0], resource, None, (), None, False
    return fate.node.pool.name, resource, fate.node.index, fate.devices, fate.start, True


def _check_outcome(supply: Supply, workload: Workload, settings: SimulationSettings, expected: Oracle) -> None:
    outcome = engine.simulate(supply, workload, settings)
    ran = [fate for fate in expected.fates if fate.node]
    stays = any(fate.end is None for fate in ran)
    assert outcome.end == (None if stays else max((fate.end or 0 for fate in ran), default=0))
    assert sum(outcome.unserved.values()) == sum(fate.requested is None for fate in expected.fates)
    for pool, found in zip(supply.pools, outcome.pools, strict=True):
        _check_points(found, expected)
        _check_pool(pool, found, expected, outcome.end)
    costs = [pool.cost for pool in outcome.pools]
    known = [cost for cost in costs if cost is not None]
    assert outcome.cost == (sum(known) if len(known) == len(costs) else None)


def _check_points(found: PoolOutcome, expected: Oracle) -> None:
    states = expected.states[found.name]
    by_time = {point.time: point for point in found.points}
    assert list(by_time) == sorted(by_time)
    assert len(by_time) == len(found.points)
    point = found.points[0]
    for second, state in enumerate(states):
        point = by_time.get(second, point)
        assert {name: value for name, value in content_of(point).items() if name != "time"} == vars(state)
    most = max(state.shares for state in states)
    assert (found.peak.shares, found.peak.time) == (most, [state.shares for state in states].index(most))


def _check_pool(pool: PoolSupply, found: PoolOutcome, expected: Oracle, end: int | None) -> None:
    ran = [fate for fate in expected.fates if fate.node and fate.node.pool is pool]
    pairs = list(zip(expected.fates, expected.pods, strict=True))
    assert found.placed == len(ran)
    pending = [fate for fate in expected.fates if fate.requested and fate.requested[0][0] == pool.name and not fate.node]
    assert sum(found.pending.values()) == len(pending)
    assert found.waited_seconds == sum((fate.start or 0) - pod.arrival for fate, pod in pairs if fate in ran)
    nodes = [node for node in expected.nodes if node.pool is pool]
    assert (found.nodes, found.is_open) == (len(nodes), pool.nodes is None)
    assert found.shares == sum(device.slots for device in pool.devices) * len(nodes)
    peak = found.peak
    stranded = None if pool.gpu_mib is None else max(peak.gpus * pool.gpu_mib - peak.asked_mib, 0)
    assert found.stranded_mib == stranded
    hours = None if end is None else Fraction(pool.gpus_per_node * len(nodes) * end, 3600)
    assert (found.used_gpu_hours is None) == (end is None) == found.is_hourly
    assert found.gpu_hours == (None if hours is None else pytest.approx(float(hours)))
    if found.used_gpu_hours is not None:
        used = sum(_part(pool, device) * ((fate.end or 0) - (fate.start or 0)) for fate in ran for device in fate.devices)
        assert found.used_gpu_hours == pytest.approx(float(used / 3600))
        assert found.used_gpu_hours <= (found.gpu_hours or 0) + 1e-9
    if pool.price:
        charged = pool.gpus_per_node * len(nodes) if hours is None else float(hours)
        assert found.cost == pytest.approx(charged * pool.price.per_hour)


def _part(pool: PoolSupply, device: int) -> Fraction:
    """The part of its GPU that a share of the device is, if all shares together are the whole of it."""
    one = pool.devices[device]
    return Fraction(one.milli, sum(other.slots * other.milli for other in pool.devices if other.gpu == one.gpu))


def _check_rules(supply: Supply, workload: Workload, found: tuple[PodPlacement, ...]) -> None:
    """No device over its slots and no quota exceeded at any second; every pod once; none where it may not run."""
    assert [one.pod for one in found] == list(range(len(workload.pods)))
    pools = {pool.name: pool for pool in supply.pools}
    running: dict[int, list[PodPlacement]] = {}
    for one, pod in zip(found, workload.pods, strict=True):
        assert (one.node is None) == bool(one.reason)
        if one.start is None:
            continue
        pool = pools[one.pool]
        assert pod.pool in ("", pool.name)
        assert not pod.cards or pool.card in pod.cards
        if supply.denies or pod.resource is None:
            assert not pool.namespaces or pod.namespace in pool.namespaces
        assert {pool.devices[device].resource for device in one.devices} == {one.resource}
        assert one.start >= pod.arrival
        for second in range(one.start, one.start + (20 if pod.duration is None else pod.duration)):
            running.setdefault(second, []).append(one)
    for placed in running.values():
        holders: dict[tuple[str, int | None, int], int] = {}
        used: dict[tuple[str, str], int] = {}
        for one in placed:
            for device in one.devices:
                holders[one.pool, one.node, device] = holders.get((one.pool, one.node, device), 0) + 1
            key = workload.pods[one.pod].namespace, one.resource
            used[key] = used.get(key, 0) + len(one.devices)
        assert all(number <= pools[pool].devices[device].slots for (pool, _, device), number in holders.items())
        assert all(number <= supply.quotas.get(key, number) for key, number in used.items())
