"""What a large simulation costs: it grows with the number of pods, however many of them wait."""

import random
import time
import tracemalloc
from functools import partial
from typing import Any

from gpushare.intent.types import Exclusive, Mig, NodeSelector, Quota, TimeSlicing
from gpushare.study.simulation import engine, supply
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import PodRequest, Workload
from tests.compiler.resolved.builders import plan, pool
from tests.support import scale
from tests.support.costs import grows_in_line

PODS, GPUS = 10_000, 6_000


def offered(gpus: int) -> Supply:
    nodes = NodeSelector(match_labels=(("a", "b"),), expected=gpus // 24)
    mig = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)))
    pools = [
        pool(how, name=name, nodes=nodes, gpus=8)
        for name, how in (("m", mig), ("x", TimeSlicing(replicas=4)), ("w", Exclusive()))
    ]
    quotas = tuple(Quota(namespace=f"team-{number}", pool="x", shares=30) for number in range(20))
    return supply.of(plan(*pools, quotas=quotas), {})


def asked(pods: int, *, seconds: int) -> Workload:
    """Pods that arrive within some seconds, and leave at random."""
    chance = random.Random(1)

    def pod(number: int) -> PodRequest:
        what = ({"memory_bytes": chance.randrange(1, 9 << 30)}, {"milli": 250}, {"gpus": chance.randint(1, 8)})
        whose, stays = f"team-{chance.randrange(40)}", chance.randrange(1, 4000)
        given: dict[str, Any] = chance.choice(what)
        return PodRequest(namespace=whose, name=str(number), arrival=chance.randrange(seconds), duration=stays, **given)

    return Workload(source="random", pods=tuple(map(pod, range(pods))))


def test_the_cost_grows_with_the_pods_although_most_of_them_wait() -> None:
    few, pods = offered(120), 2000
    outcome = engine.simulate(few, asked(pods, seconds=200))
    assert sum(max(point.pending for point in one.points) for one in outcome.pools) > pods // 2
    assert grows_in_line(lambda number: partial(engine.simulate, few, asked(number, seconds=200)), pods)


def test_ten_thousand_pods_on_six_thousand_gpus_take_seconds() -> None:
    cluster, workload = offered(GPUS), asked(PODS, seconds=1000)
    began = time.process_time()
    outcome = engine.simulate(cluster, workload)
    assert time.process_time() - began < 10
    assert sum(one.placed for one in outcome.pools) == PODS


def test_they_take_less_than_300_mib() -> None:
    cluster, workload = offered(GPUS), asked(scale.examples(PODS), seconds=1000)
    tracemalloc.start()
    engine.simulate(cluster, workload)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300 << 20
