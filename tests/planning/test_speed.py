"""A thousand pools are planned while a person blinks."""

import time

from gpushare.intent import Mig, NodeSelector, Pool, Sharing, TimeSlicing
from gpushare.plan import Plan
from tests.planning.sketches import A100, plan, pool


def thousand(sharing: Sharing, card: str) -> list[Pool]:
    def nodes(number: int) -> NodeSelector:
        return NodeSelector(match_labels=(("flavour", f"gpu-{number}"),))

    return [pool(sharing, card, f"pool-{number:04}", gpus=8, nodes=nodes(number)) for number in range(1000)]


def best_of_three(pools: list[Pool]) -> tuple[Plan, float]:
    resolved, seconds = plan(pools[0]), []  # the first call reads the card, once per process
    for _ in range(3):
        began = time.process_time()
        resolved = plan(*pools)
        seconds.append(time.process_time() - began)
    return resolved, min(seconds)


def test_a_thousand_time_sliced_pools_take_less_than_300_ms() -> None:
    resolved, seconds = best_of_three(thousand(TimeSlicing(replicas=4), "t4"))
    assert len(resolved.pools) == 1000
    assert seconds < 0.3


def test_a_thousand_mig_pools_take_less_than_200_ms() -> None:
    resolved, seconds = best_of_three(thousand(Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=2), A100))
    assert len({one.profile.key for one in resolved.pools}) == 1
    assert seconds < 0.2
