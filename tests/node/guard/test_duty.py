"""Duty: nobody is over its cap for more than 40 % of ten minutes, whatever its tenant does with pods."""

from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import CapAction, Process
from gpushare_node.guard.verdicts import AnomalyKind, Evict, Kill, Terminate, Verdict
from tests.bench import cap_curve
from tests.node.guard.duty_model import Duty, Pod
from tests.node.guard.guard_fixture import GIB, GPU, Node, reasons, signalled, tenant
from tests.node.guard.test_debt import HIGH, LOW, UNGUIDED, remove, stand_in
from tests.support import scale

MOST = 0.4

SPELLS = st.one_of(st.floats(1, 60), st.just(1e9))
PODS = st.builds(
    Pod,
    over=SPELLS,
    calm=st.one_of(st.just(0.0), st.floats(1, 60)),
    shift=st.floats(0, 60),
    gap=st.floats(3, 60),
    life=SPELLS,
    in_place=st.booleans(),
    is_deaf=st.booleans(),
)


@pytest.mark.failure_case(87)
@given(
    pods=st.lists(PODS, min_size=1, max_size=4),
    action=st.sampled_from([CapAction.KILL, CapAction.KILL, CapAction.EVICT]),
    seed=st.integers(0, 1 << 32),
)
@settings(parent=UNGUIDED, max_examples=scale.examples(4))
def test_no_pod_is_over_its_cap_for_long_through_all_its_runs(*, pods: list[Pod], action: CapAction, seed: int) -> None:
    duty = Duty(pods=pods, rng=Random(seed), action=action)
    duty.run(900)
    assert max(duty.shares()) <= MOST


@pytest.mark.failure_case(87)
@pytest.mark.parametrize("in_place", [False, True], ids=["new pods", "in its pod"])
@pytest.mark.parametrize("is_deaf", [False, True])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_pod_that_comes_again_after_three_seconds_is_over_its_cap_for_less_than_half(
    *, in_place: bool, is_deaf: bool, count: int
) -> None:
    """One pod, and several: each is ended as soon, whoever else of its namespace is."""
    pods = [Pod(over=1e9, in_place=in_place, is_deaf=is_deaf) for _ in range(count)]
    duty = Duty(pods=pods, rng=Random(count))
    duty.run(700)
    assert max(duty.shares()) <= MOST
    assert min(len(pod.ended) for pod in pods) > 100


def test_page_of_the_node_has_the_curve_that_the_command_makes() -> None:
    page = (Path(__file__).parents[3] / "docs" / "node.md").read_text(encoding="utf-8")
    assert "\n".join(cap_curve.rows()) in page, "python -m tests.bench.cap_curve"


def owing(node: Node) -> Node:
    """A namespace that owes the most that it can, on account of pods that come again at once."""
    for number in range(20):
        process = stand_in(node, number, HIGH)
        for _ in range(72):
            if any(isinstance(one, Kill) for one in node.cycle(0.25)):
                break
        remove(node, process)
        node.cycle(0.25)
    return node


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("apart", [0.1, 0.25, 0.5])
def test_colleague_of_an_offender_is_ended_for_seconds_of_its_own_and_never_for_samples(apart: float) -> None:
    """However often it is looked at: before its own time over its cap is `confirm_seconds`, nothing happens to it."""
    node = owing(Node())
    colleague = stand_in(node, 900, LOW)
    node.cycle(0.25)
    node.used[GPU][colleague.pid] = HIGH
    began, told = node.now + apart, list[Verdict]()
    while not signalled(told):
        told += node.cycle(apart)
    assert node.now - began >= node.settings.confirm_seconds - 1e-6
    assert node.now - began < node.settings.confirm_seconds + apart


@pytest.mark.failure_case(86)
@given(spikes=st.lists(st.tuples(st.floats(0.05, 0.4), st.floats(0.3, 5)), min_size=1, max_size=3))
@settings(max_examples=scale.examples(30))
def test_short_spikes_of_a_colleague_cost_it_nothing(spikes: list[tuple[float, float]]) -> None:
    node = owing(Node())
    colleague = stand_in(node, 900, LOW)
    node.cycle(0.25)
    told: list[Verdict] = []
    for over, calm in spikes:
        for used, seconds in ((HIGH, over), (LOW, calm)):
            node.used[GPU][colleague.pid] = used
            for _ in range(4):
                told += node.cycle(seconds / 4)
    assert signalled(told) == []


@pytest.mark.failure_case(87)
def test_pod_that_stood_there_before_keeps_its_time_to_exit() -> None:
    """It has ended nothing before: it gets SIGTERM, five seconds, and is not evicted. A new one is killed and evicted."""
    node = Node()
    colleague = stand_in(node, 900, LOW)
    owing(node)
    node.used[GPU][colleague.pid] = HIGH
    told = [one for one in node.cycles(20, 0.25) if isinstance(one, Terminate | Kill | Evict)]
    assert [type(one) for one in told] == [Terminate]
    newcomer = stand_in(node, 901, 6 * GIB)
    told = [
        one
        for one in node.cycles(8, 0.25)
        if isinstance(one, Terminate | Kill | Evict) and one.facts.unit.container == newcomer.container
    ]
    assert [type(one) for one in told] == [Kill, Evict]
    assert told[1].facts.ended > 10
    assert 0 < told[1].facts.ended_seconds < node.now


def test_crowd_of_several_namespaces_stops_all_signals_on_its_device() -> None:
    """Whose SIGTERM was sent before is not killed meanwhile, and nobody owes for it afterwards."""
    node = Node(cap=replace(Node().cap, bytes=GIB))
    node.run(tenant_of(0), 2 * GIB)
    node.until(Terminate)
    before = dict(node.history.violations)
    for number in range(1, node.settings.crowd + 1):
        node.run(tenant_of(number), 2 * GIB)
    verdicts = node.cycles(200)
    assert signalled(verdicts) == []
    assert AnomalyKind.CROWDED in reasons(verdicts)
    assert {unit: one.debt.seconds for unit, one in node.history.violations.items()} == {
        unit: one.debt.seconds for unit, one in before.items()
    }
    node.end(500 + node.settings.crowd)
    verdicts = node.cycles(14)
    assert AnomalyKind.CROWDED not in reasons(verdicts)
    assert {process.pid for process in signalled(verdicts)} == set(range(500, 500 + node.settings.crowd))


@pytest.mark.parametrize("change", ["fewer", "one namespace", "half of them"])
def test_no_crowd_shelters_anybody(change: str) -> None:
    node = Node(cap=replace(Node().cap, bytes=GIB))
    count = node.settings.crowd + (change != "fewer")
    for number in range(count):
        if change == "one namespace":
            stand_in(node, number, 2 * GIB)
        else:
            node.run(tenant_of(number), 2 * GIB)
    for number in range(count, 2 * count if change == "half of them" else count):
        node.run(tenant_of(number), GIB // 16)
    verdicts = node.cycles(14)
    assert AnomalyKind.CROWDED not in reasons(verdicts)
    assert {process.pid for process in signalled(verdicts)} == {500 + number for number in range(count)}


@pytest.mark.failure_case(87)
@pytest.mark.parametrize("change", ["four namespaces", "one pod each", "strays"])
def test_few_people_make_no_crowd(change: str) -> None:
    """Not with many pods in a few namespaces, many containers of a pod, or containers that were not given the device."""
    node = Node(cap=replace(Node().cap, bytes=GIB))
    for number in range(node.settings.crowd + 2):
        process = node.run(tenant_of(number), 2 * GIB)
        assert process.container is not None
        own = node.grants.pop(process.container)
        if change == "four namespaces":
            own = replace(own, owner=own.owner._replace(namespace=f"team-{number % 4}"))
        elif change == "strays":
            own = replace(own, devices=frozenset(), caps={}, stray_cap=replace(node.cap, bytes=0))
        else:
            process = replace(process, container=process.container._replace(pod_uid=f"pod-{number % 5}"))
            own = replace(own, owner=own.owner._replace(namespace=f"team-{number % 5}"))
            node.processes[process.pid] = process
        assert process.container is not None
        node.grants[process.container] = own
    node.is_allocation_known = True
    verdicts = node.cycles(14)
    assert AnomalyKind.CROWDED not in reasons(verdicts)
    assert {process.pid for process in signalled(verdicts)} == {500 + number for number in range(node.settings.crowd + 2)}


def tenant_of(number: int) -> Process:
    return tenant(500 + number, f"c{number}")
