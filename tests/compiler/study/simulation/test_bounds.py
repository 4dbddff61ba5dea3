"""The bounds: no packing needs fewer GPUs than `lower`, and best fit and whole GPUs need as many as they say."""

import random
from typing import Any

from gpushare.core.units import MIB
from gpushare.study.simulation import outcome
from gpushare.study.simulation.outcome import Bounds
from gpushare.study.simulation.supply import Supply
from gpushare.study.workload.requests import PodRequest
from gpushare_node.contract.struct import replace
from tests.compiler.study.simulation import cases
from tests.support import scale

NO_POOLS = Supply(pools=(), quotas={})


def pod(milli: int | None = None, arrival: int = 0, duration: int | None = None, **asked: Any) -> PodRequest:
    return PodRequest(namespace="a", name="p", milli=milli, arrival=arrival, duration=duration, **asked)


def one_card(gpu_mib: int | None) -> Supply:
    chance = random.Random(1)
    return Supply(pools=(replace(cases.supply(chance).pools[0], gpu_mib=gpu_mib),), quotas={})


def test_parts_memory_and_whole_gpus_count_together() -> None:
    pods = [pod(500), pod(memory_bytes=6 * MIB), pod(memory_bytes=6 * MIB), pod(gpus=2), pod(1000), pod(resource="gpu")]
    assert outcome.bounds_of(one_card(8), pods) == Bounds(lower=5, free_sizes=6, whole=6)


def test_memory_is_not_compared_across_cards_or_where_it_is_not_known() -> None:
    asked = [pod(memory_bytes=MIB)]
    first = one_card(8)
    other = replace(first.pools[0], name="other", card="other")
    assert outcome.bounds_of(replace(first, pools=(*first.pools, other)), asked) is None
    assert outcome.bounds_of(one_card(None), asked) is None
    assert outcome.bounds_of(NO_POOLS, [pod(100)]) == Bounds(lower=1, free_sizes=1, whole=1)
    assert outcome.bounds_of(NO_POOLS, [pod(resource="gpu")]) is None


def test_who_asks_for_more_than_a_gpu_is_left_out() -> None:
    assert outcome.bounds_of(one_card(8), [pod(memory_bytes=16 * MIB), pod(memory_bytes=8 * MIB)]) == Bounds(
        lower=1, free_sizes=1, whole=1
    )


def test_the_time_of_the_most_pods_counts_and_who_ends_then_does_not() -> None:
    pods = [pod(1000, duration=5), pod(1000, arrival=5), pod(600, arrival=6, duration=1), pod(600, arrival=7, duration=0)]
    assert outcome.bounds_of(NO_POOLS, pods) == Bounds(lower=2, free_sizes=2, whole=2)


def test_of_two_times_with_as_many_pods_the_first_counts() -> None:
    pods = [pod(gpus=2, duration=1), pod(100, arrival=5, duration=1)]
    assert outcome.bounds_of(NO_POOLS, pods) == Bounds(lower=2, free_sizes=2, whole=2)


def test_naive_best_fit_agrees_and_no_packing_beats_the_lower_bound() -> None:
    for seed in range(scale.examples(2000)):
        chance = random.Random(seed)
        sizes = [chance.choice((100, 250, 320, 470, 500, 810)) for _ in range(chance.randint(1, 7))]
        found = outcome.bounds_of(NO_POOLS, [pod(one) for one in sizes])
        assert found
        assert found.free_sizes == len(_best_fit(sizes))
        assert found.lower <= _fewest(sizes, []) <= found.free_sizes <= found.whole == len(sizes)


def _best_fit(sizes: list[int]) -> list[int]:
    gpus: list[int] = []
    for one in sorted(sizes, reverse=True):
        roomy = [number for number, used in enumerate(gpus) if used + one <= 1000]
        if roomy:
            gpus[max(roomy, key=lambda number: gpus[number])] += one
        else:
            gpus.append(one)
    return gpus


def _fewest(sizes: list[int], gpus: list[int]) -> int:
    """The fewest GPUs of all packings."""
    if not sizes:
        return len(gpus)
    first, *rest = sizes
    tried = [[*gpus[:at], used + first, *gpus[at + 1 :]] for at, used in enumerate(gpus) if used + first <= 1000]
    return min(_fewest(rest, one) for one in [*tried, [*gpus, first]])
