"""A thousand pools are planned in time that grows with their number, not with its square."""

from functools import partial

from gpushare.intent.types import Mig, NodeSelector, Pool, Sharing, TimeSlicing
from tests.compiler.plan.builders import A100, plan, pool
from tests.support.costs import grows_in_line


def many(count: int, sharing: Sharing, card: str) -> list[Pool]:
    def nodes(number: int) -> NodeSelector:
        return NodeSelector(match_labels=(("flavour", f"gpu-{number}"),))

    return [pool(sharing, card, f"pool-{number:04}", gpus=8, nodes=nodes(number)) for number in range(count)]


def test_a_thousand_time_sliced_pools() -> None:
    assert len(plan(*many(1000, TimeSlicing(replicas=4), "t4")).pools) == 1000
    assert grows_in_line(lambda count: partial(plan, *many(count, TimeSlicing(replicas=4), "t4")), 1000)


def test_a_thousand_mig_pools_share_one_profile() -> None:
    sharing = Mig(wanted=(("2g.10gb", 2), ("1g.5gb", 3)), replicas=2)
    assert len({one.profile.key for one in plan(*many(1000, sharing, A100)).pools}) == 1
    assert grows_in_line(lambda count: partial(plan, *many(count, sharing, A100)), 1000)
