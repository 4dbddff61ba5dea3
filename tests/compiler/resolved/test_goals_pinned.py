"""Goals: resolved once, remembered by the lock file, asked again when the intent asks something else."""

import pytest

from gpushare import pipeline
from gpushare.bundle.lock import EMPTY, GoalPin, Lock
from gpushare.core.units import SizeOrPercent
from gpushare.facts.catalog import cards
from gpushare.intent.types import Balanced, Instances, Layout, MemoryEach, Mig, MigStrategy, MostInstances, Pool
from gpushare.resolved.plan import PoolPlan, goal_inputs_digest
from tests.compiler.resolved.builders import memory, planned, pool

PINNED: Layout = (("1g.5gb", 3),)
MOST = pool(Mig(wanted=MostInstances()))


def lock(question: str, layout: Layout = PINNED) -> Lock:
    return Lock(goals={"research": GoalPin(question=question, layout=layout)})


def remembered(one: Pool, layout: Layout = PINNED) -> PoolPlan:
    """The pool compiled again under a lock that remembers `layout` for it."""
    return planned(one, lock=lock(planned(one).goal_inputs_digest, layout))


def test_a_goal_becomes_a_layout_with_a_question() -> None:
    one = planned(MOST)
    assert one.layout_of_goal == (("1g.5gb", 7),)
    assert one.goal_inputs_digest


def test_explicit_layout_has_no_goal() -> None:
    one = planned(pool(Mig(wanted=PINNED)))
    assert (one.layout_of_goal, one.goal_inputs_digest) == (None, "")


def test_pinned_goal_layout_is_kept() -> None:
    one = remembered(MOST)
    assert one.layout_of_goal == PINNED
    assert len(one.devices) == 12


def test_pinned_layout_the_card_no_longer_allows_is_resolved_again() -> None:
    assert remembered(MOST, (("1g.5gb", 9),)).layout_of_goal == (("1g.5gb", 7),)
    assert remembered(MOST, (("1g.23gb", 1),)).layout_of_goal == (("1g.5gb", 7),)


def test_lock_entry_of_a_pool_without_a_goal_is_ignored() -> None:
    one = pool(Mig(wanted=(("2g.10gb", 3),)))
    assert planned(one, lock=lock("")).devices == planned(one, lock=EMPTY).devices


@pytest.mark.parametrize(
    "other",
    [
        pool(Mig(wanted=MostInstances()), "a100-pcie-40gb"),
        pool(Mig(wanted=Balanced())),
        pool(Mig(wanted=Instances(count=2))),
        pool(Mig(wanted=MemoryEach(size_bytes=4 << 30))),
        pool(Mig(wanted=MemoryEach(size_bytes=5 << 30))),
        pool(Mig(wanted=MostInstances(), strategy=MigStrategy.SINGLE)),
        pool(Mig(wanted=MostInstances()), **memory(reserve=SizeOrPercent(bytes=1 << 30))),
    ],
)
def test_changed_goal_is_resolved_again(other: Pool) -> None:
    question = planned(MOST).goal_inputs_digest
    assert planned(other).goal_inputs_digest != question
    assert planned(other, lock=lock(question)) == planned(other)


def test_a_replica_more_does_not_move_the_layout() -> None:
    question = planned(MOST).goal_inputs_digest
    assert planned(pool(Mig(wanted=MostInstances(), replicas=2)), lock=lock(question)).layout_of_goal == PINNED


def test_the_intents_own_description_of_a_card_is_part_of_the_question() -> None:
    assert planned(MOST, cards={"a100-sxm4-40gb": {"name": "ours"}}).goal_inputs_digest != planned(MOST).goal_inputs_digest


@pytest.mark.parametrize("card", ["a30", "h100-sxm5-80gb", "rtx-pro-6000-server"])
def test_most_instances_is_as_many_as_the_card_has(card: str) -> None:
    one = planned(pool(Mig(wanted=MostInstances()), card, gpus=1))
    mig = cards.load(card).mig
    assert mig
    assert len(one.devices) == max(profile.max_count for profile in mig.profiles if not profile.has_attributes)


@pytest.mark.parametrize(
    ("sharing", "more", "pinned", "code"),
    [
        ("goal: most-instances, strategy: single", "", (("3g.20gb", 1), ("1g.5gb", 4)), "GS405"),
        ("goal: most-instances, replicas: {1g.5gb: 2}", "", (("2g.10gb", 3),), "GS407"),
        ("goal: most-instances, replicas: 4", "memory: {cap: 2Gi}", (("1g.5gb", 7),), "GS501"),
        ("goal: most-instances", "", (("3g.20gb", 1), ("1g.5gb", 3)), "GS602"),
    ],
)
def test_pinned_goal_layout_is_checked_like_a_new_one(sharing: str, more: str, pinned: Layout, code: str) -> None:
    fields = f"card: a100-sxm4-40gb, nodes: {{names: [n1]}}, gpusPerNode: 1, sharing: {{mode: mig, {sharing}}}, {more}"
    quotas = "quotas: {atlas: {research: 1}}\n  " if code == "GS602" else ""
    head = "apiVersion: gpushare.dev/v1\nkind: ClusterIntent\nmetadata: {name: c}\nspec:\n  "
    text = f"{head}{quotas}pools: {{research: {{{fields}}}}}\n".encode()
    fresh = pipeline.check(text, "intent.yaml")
    assert fresh.intent
    question = goal_inputs_digest(fresh.intent, fresh.intent.pools[0])
    again = pipeline.compile_intent(text, "intent.yaml", lock(question, pinned))
    assert code in [finding.code for finding in again.findings]
    assert again.artifacts == ()
    assert pipeline.compile_intent(text, "intent.yaml", lock("another", pinned)).findings == fresh.findings
