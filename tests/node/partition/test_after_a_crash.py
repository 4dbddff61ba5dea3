"""The program may die at any moment: the next plan starts from what exists then, and still nothing more is lost."""

import pytest

from gpushare_node.partition import plan
from gpushare_node.partition.operations import CreateInstance, DestroyInstance
from tests.compiler.facts.mig import known_cards
from tests.node.partition import builders
from tests.node.partition.layout_pairs import Deck, as_wanted
from tests.node.partition.simulator import halfway, run, simulate
from tests.support import scale

CARDS = [(known_cards.A100, 60), ("a30", 1), ("h100-sxm5-80gb", 60), ("rtx-pro-6000-server", 1)]


def operations_from(state, policy):
    planned = plan(state, policy)
    assert not planned.unfit
    return planned.operations


@pytest.mark.failure_case(16)
@pytest.mark.parametrize(("card", "every"), CARDS)
def test_plan_after_a_crash_between_operations_is_the_remainder(card: str, every: int) -> None:
    for pair in Deck(card).pairs(every if scale.is_long else every * 12):
        state = pair.state
        operations = operations_from(state, pair.policy)
        for done, operation in enumerate(operations, 1):
            state = simulate(state, operation)
            assert operations_from(state, pair.policy) == operations[done:]
        assert as_wanted(state, pair.policy)


@pytest.mark.failure_case(15, 16)
@pytest.mark.parametrize(("card", "every"), CARDS)
def test_plan_after_a_crash_within_an_operation_destroys_only_the_orphan(card: str, every: int) -> None:
    """The orphan is a GPU instance of our own whose compute instance was never made."""
    for pair in Deck(card).pairs(every if scale.is_long else every * 12):
        state = pair.state
        operations = operations_from(state, pair.policy)
        for done, operation in enumerate(operations):
            broken = halfway(state, operation)
            after = operations_from(broken, pair.policy)
            orphans = [instance for instance in builders.mig_of(broken).instances if not instance.is_whole]
            gone = [one.instance for one in after if isinstance(one, DestroyInstance)]
            planned = [one.instance for one in operations[done:] if isinstance(one, DestroyInstance)]
            own = [one for one in planned if not isinstance(operation, DestroyInstance) or one != operation.instance]
            assert sorted(gone, key=repr) == sorted([*orphans, *own], key=repr)
            assert [one for one in after if isinstance(one, CreateInstance)] == [
                one for one in operations[done:] if isinstance(one, CreateInstance)
            ]
            assert as_wanted(run(broken, after), pair.policy)
            state = simulate(state, operation)


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("card", [card for card, _ in CARDS])
@pytest.mark.parametrize("is_told_when_off", [True, False])
def test_every_layout_is_reached_from_mig_off_after_a_crash_anywhere(card: str, is_told_when_off: bool) -> None:
    """Also with drivers that name no placement before MIG is on: there the first plan ends with the mode."""
    deck = Deck(card)
    for ways in scale.some(list(deck.ways.values()), 10):
        policy = deck.policy(ways[0])
        own = builders.mig(current=False, profiles=deck.profiles if is_told_when_off else ())
        state = builders.state(builders.gpu(own))
        (first,) = plan(state, policy).gpus
        assert first.is_final == is_told_when_off
        steps = 0
        while operations := operations_from(state, policy):
            assert as_wanted_in_the_end(halfway(state, operations[0]), policy, deck.profiles)
            state = simulate(state, operations[0], deck.profiles)
            steps += 1
        assert steps == 1 + sum(count for _, count in next(name for name, value in deck.ways.items() if value is ways))
        assert deck.stands(state.gpus[0]) == ways[0], "on an empty GPU instances stand where the policy says"


def as_wanted_in_the_end(state, policy, profiles) -> bool:
    for _ in range(3):
        state = run(state, operations_from(state, policy), profiles)
    return as_wanted(state, policy)


def test_switching_mig_off_resumes_after_a_crash_anywhere() -> None:
    policy = builders.policy(())
    state = builders.state(builders.gpu(builders.mig(*builders.instances(("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 2)))))
    operations = operations_from(state, policy)
    assert len(operations) == 4
    for done, operation in enumerate(operations):
        broken = halfway(state, operation)
        assert len(operations_from(broken, policy)) == 4 - done
        own = builders.mig_of(run(broken, operations_from(broken, policy)))
        assert (own.current, own.pending, own.instances) == (False, False, ())
        state = simulate(state, operation)
        assert operations_from(state, policy) == operations[done + 1 :]
