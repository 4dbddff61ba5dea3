"""What a cluster does in single situations, each told by what becomes of a few pods."""

from typing import Any

from gpushare.core.prices import Price
from gpushare.core.units import MIB
from gpushare.intent.types import Exclusive, Mig, NodeSelector, Pool, Quota, SharePlacement, Sharing, TimeSlicing
from gpushare.study.simulation import engine, supply
from gpushare.study.simulation.engine import Scoring, SimulationSettings
from gpushare.study.simulation.outcome import PodPlacement, SimulationOutcome
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import PodRequest, Workload
from gpushare_node.contract.struct import replace
from tests.compiler.resolved.builders import A100, plan, pool

SHARED = "nvidia.com/gpu.shared"
GIB = 1024 * MIB


def pods(*asked: dict[str, Any]) -> Workload:
    """Pods of namespace `atlas` that ask for one share of a GPU, unless they say otherwise."""
    usual = {"namespace": "atlas", "name": "p"}
    named = [one if {"memory_bytes", "milli", "gpus", "resource"} & set(one) else {"resource": SHARED, **one} for one in asked]
    return Workload(source="test", pods=tuple(PodRequest(**usual | one) for one in named))


def t4(sharing: Sharing, name: str = "notebooks", nodes: int | None = 1, gpus: int = 1, **given: Any) -> Pool:
    selector = NodeSelector(match_labels=(("pool", name),), expected=nodes)
    return pool(sharing, "t4", name, nodes=selector, gpus=gpus, **given)


def offered(*pools: Pool, prices: dict[str, Price] | None = None, **given: Any) -> Supply:
    return supply.of(plan(*pools, **given), prices or {})


def starts(supplied: Supply, workload: Workload) -> list[int | None]:
    return [one.start for one in engine.placements(supplied, workload)]


def reasons(supplied: Supply, workload: Workload) -> list[str]:
    return [one.reason for one in engine.placements(supplied, workload)]


def where(found: tuple[PodPlacement, ...]) -> list[tuple[int | None, tuple[int, ...]]]:
    return [(one.node, one.devices) for one in found]


def outcome(supplied: Supply, workload: Workload) -> SimulationOutcome:
    return engine.simulate(supplied, workload)


def test_a_share_is_free_for_others_at_the_second_at_which_its_pod_ends() -> None:
    one = offered(t4(TimeSlicing(replicas=2)))
    workload = pods({"duration": 9}, {"duration": 20}, {"arrival": 1, "duration": 5}, {"arrival": 9, "duration": 3})
    assert starts(one, workload) == [0, 0, 9, 14]
    assert outcome(one, workload).pools[0].waited_seconds == 8 + 5


def test_a_pod_that_fits_overtakes_one_that_does_not() -> None:
    one = offered(t4(Exclusive(), gpus=4))
    workload = pods(
        {"gpus": 3, "duration": 10}, {"gpus": 2, "arrival": 1, "duration": 5}, {"gpus": 1, "arrival": 2, "duration": 5}
    )
    assert starts(one, workload) == [0, 10, 2]


def test_quota_is_held_by_a_pod_that_waits_for_room_and_freed_when_it_ends() -> None:
    quota = Quota(namespace="atlas", pool="notebooks", shares=1)
    one = offered(t4(TimeSlicing(replicas=2)), quotas=(quota,))
    busy = [{"namespace": "cms", "duration": 10}] * 2
    workload = pods(*busy, {"arrival": 1, "duration": 5}, {"arrival": 2, "duration": 5})
    assert starts(one, workload) == [0, 0, 10, 15]
    forever = pods({}, {})
    assert reasons(one, forever) == ["", f"the quota of namespace atlas for {SHARED} is used up"]
    assert dict(outcome(one, forever).pools[0].pending) == {reasons(one, forever)[1]: 1}


def test_a_pod_that_gets_its_quota_waits_for_room_in_the_order_of_its_arrival() -> None:
    quota = Quota(namespace="atlas", pool="a", shares=1)
    one = offered(t4(TimeSlicing(replicas=2), "a"), t4(TimeSlicing(replicas=2), "b"), quotas=(quota,))
    full = [{"namespace": "cms", "pool": "b", "duration": 20}, {"namespace": "cms", "pool": "b", "duration": 30}]
    late, later = {"pool": "b", "arrival": 1, "duration": 1}, {"namespace": "cms", "pool": "b", "arrival": 2, "duration": 1}
    assert starts(one, pods(*full, {"pool": "a", "duration": 10}, late, later)) == [0, 0, 0, 20, 21]


def test_the_scheduler_spreads_over_nodes_or_fills_them() -> None:
    one = offered(t4(TimeSlicing(replicas=2), nodes=3))
    spread = engine.placements(one, pods({}, {}, {}, {}))
    filled = engine.placements(one, pods({}, {}, {}, {}), SimulationSettings(scoring=Scoring.MOST_ALLOCATED))
    assert [node for node, _ in where(spread)] == [0, 1, 2, 0]
    assert [node for node, _ in where(filled)] == [0, 0, 1, 1]


def test_the_plugin_spreads_over_gpus_or_packs_them_and_instances_come_in_their_order() -> None:
    spread = offered(t4(TimeSlicing(replicas=2), gpus=2))
    packed = offered(t4(TimeSlicing(replicas=2, placement=SharePlacement.PACK), gpus=2))
    assert [devices for _, devices in where(engine.placements(spread, pods({}, {}, {})))] == [(0,), (1,), (0,)]
    assert [devices for _, devices in where(engine.placements(packed, pods({}, {}, {})))] == [(0,), (0,), (1,)]
    assert outcome(spread, pods({}, {})).pools[0].peak.gpus == 2
    assert outcome(packed, pods({}, {})).pools[0].peak.gpus == 1
    mig = offered(pool(Mig(wanted=(("3g.20gb", 1), ("1g.5gb", 3))), gpus=1, nodes=NodeSelector(names=("n",))))
    small = {"resource": "nvidia.com/mig-1g.5gb", "count": 2}
    order = [one.resource for one in mig.pools[0].devices]
    assert where(engine.placements(mig, pods(small))) == [
        (0, tuple(number for number, name in enumerate(order) if name == small["resource"])[:2])
    ]


def test_memory_gets_the_smallest_share_that_provides_it_and_never_another() -> None:
    one = offered(t4(TimeSlicing(replicas=4), "quarters"), t4(TimeSlicing(replicas=2), "halves"), t4(Exclusive(), "whole"))
    found = engine.placements(
        one, pods(*[{"memory_bytes": size * GIB} for size in (3, 4, 8, 15)], {"milli": 300}, {"milli": 501})
    )
    assert [one.pool for one in found] == ["quarters", "halves", "whole", "", "halves", "whole"]
    full = pods(*[{"memory_bytes": 3 * GIB}] * 5)
    assert reasons(one, full)[-1] == f"no node has 1 {SHARED} free"


def test_equal_shares_of_several_pools_serve_the_same_pods() -> None:
    one = offered(t4(TimeSlicing(replicas=2), "east"), t4(TimeSlicing(replicas=2), "west"))
    assert [found.pool for found in engine.placements(one, pods(*[{"memory_bytes": 3 * GIB}] * 3))] == ["east", "west", "east"]


def test_a_container_gets_one_share_but_several_instances_or_gpus() -> None:
    one = offered(t4(TimeSlicing(replicas=4)))
    refused = f"a container gets one {SHARED} at most: it is shared"
    assert reasons(one, pods({"count": 2}, {"count": 2, "per_container": 1})) == [refused, ""]
    whole = offered(t4(Exclusive(), gpus=4))
    assert reasons(whole, pods({"gpus": 4}, {"gpus": 5})) == ["", "no node has as many whole GPUs"]


def test_admission_sends_a_pod_that_names_no_pool_to_its_namespaces_or_to_the_default() -> None:
    quarters, halves = t4(TimeSlicing(replicas=4), "quarters", is_default=True), t4(TimeSlicing(replicas=2), "halves")
    asked = pods({}, {"pool": "halves"})
    assert [one.pool for one in engine.placements(offered(quarters, halves, kubernetes=(1, 36)), asked)] == [
        "quarters",
        "halves",
    ]
    unnamed = f"pools differ in what {SHARED} is: admission rejects pods that name none"
    assert reasons(offered(quarters, halves, kubernetes=(1, 35)), asked) == [unnamed, ""]
    limited = t4(TimeSlicing(replicas=2), "halves", namespaces=("atlas",))
    assert [one.pool for one in engine.placements(offered(quarters, limited, kubernetes=(1, 36)), asked)] == [
        "halves",
        "halves",
    ]


def test_a_namespace_does_not_run_where_it_may_not() -> None:
    one = offered(t4(TimeSlicing(replicas=4), namespaces=("cms",)))
    assert reasons(one, pods({"memory_bytes": GIB}, {}, {"pool": "notebooks"})) == [
        "its namespace may use no such pool",
        f"its namespace may not use every pool for {SHARED}",
        f"its namespace may not use notebooks for {SHARED}",
    ]


def test_hours_memory_and_money_of_a_pool() -> None:
    one = offered(t4(TimeSlicing(replicas=4), nodes=2), prices={"notebooks": Price(per_hour=0.5, currency="EUR")})
    found = outcome(one, pods({"memory_bytes": 2 * GIB, "duration": 3600}, {"memory_bytes": GIB, "duration": 7200}))
    (shared,) = found.pools
    assert (found.end, found.currency, found.cost, shared.cost, shared.is_hourly) == (7200, "EUR", 2.0, 2.0, False)
    assert (shared.gpu_hours, shared.used_gpu_hours) == (4.0, 0.75)
    assert (shared.peak.shares, shared.peak.asked_mib, shared.peak.granted_mib, shared.peak.gpus) == (2, 3072, 2 * 3724, 2)
    assert shared.stranded_mib == 2 * 15360 - 3072
    stays = outcome(one, pods({}))
    assert (stays.end, stays.pools[0].gpu_hours, stays.cost, stays.pools[0].is_hourly) == (None, None, 1.0, True)


def test_a_pool_of_unknown_size_has_as_many_nodes_as_are_needed() -> None:
    one = offered(t4(Exclusive(), nodes=None, gpus=2), t4(TimeSlicing(replicas=2), "unused", nodes=None))
    workload = pods({"gpus": 1, "duration": 3600}, {"gpus": 2, "duration": 3600}, {"gpus": 1, "arrival": 3600})
    found = outcome(one, workload)
    assert [(one.nodes, one.is_open, one.placed, one.cost) for one in found.pools] == [(2, True, 3, None), (0, True, 0, None)]
    priced = replace(one, pools=(replace(one.pools[0], price=Price(per_hour=1.5)), one.pools[1]))
    assert [one.cost for one in outcome(priced, workload).pools] == [6.0, 0.0]
    assert any("gets as many as needed" in one for one in found.assumed)


def test_the_same_workload_on_the_same_cluster_has_the_same_outcome() -> None:
    one = offered(pool(Mig(wanted=(("1g.5gb", 7),)), A100), t4(TimeSlicing(replicas=4)))
    workload = pods(*[{"memory_bytes": GIB, "arrival": number % 7, "duration": number % 5} for number in range(60)])
    assert outcome(one, workload) == outcome(one, workload)
