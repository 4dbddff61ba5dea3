"""The pauses of a run that stays: what ends them, also where its own node's labels and annotations do not tell."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.contract.names import RELEASE_ANNOTATION, RETRY_ANNOTATION
from gpushare_node.contract.policy import OnBusy, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from gpushare_node.reporting.outcome import Outcome, StepResult
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout
from tests.support.fake_api.server import ApiServer

DESIRED = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.WAIT, drain_timeout_seconds=60)


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    made.run(mig(SEVEN))
    return made


def stay(node: LoopNode, policy: Policy, seconds: float, at: Callable[[float], None] = lambda _: None) -> Outcome | None:
    """A run that stays for so long at most. `at` is told the seconds since the beginning."""
    start = node.clock.now()

    def tick(time: float) -> None:
        at(time - start)
        node.clock.is_stopped = time - start > seconds

    node.on_tick = tick
    try:
        return node.run(policy, hold=True)
    except Stopped:
        return None


def busy(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")


@pytest.mark.failure_case(109)
def test_recovered_api_server_ends_the_backoff(node: LoopNode) -> None:
    """The watch is open again before the next look, so that it has no news to tell."""
    busy(node)
    back: list[float] = []
    tried: list[float] = []

    def at(time: float) -> None:
        if node.api_is_up() and 1000 < time < 1700:
            node.api.down()
        elif time > 1700 and not back:
            back.append(time)
            node.entries.clear()
            node.api.up()
            node.publish()
            node.api.forget_requests()
        if back and not tried and any("/api/v1/pods" in path for _, path in node.api.requests):
            tried.append(time)

    stay(node, DESIRED, 2600, at)
    assert tried[0] - back[0] < 60


@pytest.mark.failure_case(109)
def test_release_withdrawn_during_the_release_recovers(node: LoopNode) -> None:
    node.annotate(RELEASE_ANNOTATION, node.api.asking())

    def take_back(result: StepResult) -> None:
        if result.step == "labels":
            node.annotate(RELEASE_ANNOTATION, None)

    node.before_step = take_back
    outcome = stay(node, mig(SEVEN), 600)
    assert outcome is not None
    assert outcome.reason is ConditionReason.READY
    assert node.gpus.stands(0) == set(SEVEN)


@pytest.mark.failure_case(109)
def test_retry_requested_during_an_attempt_is_honoured_after_it(node: LoopNode) -> None:
    busy(node)
    asked: list[float] = []
    heeded: list[float] = []

    def at(time: float) -> None:
        if time > 900 and not asked and node.taints():
            asked.append(time)
            node.annotate(RETRY_ANNOTATION, "yes")
        elif asked and not heeded and RETRY_ANNOTATION not in node.annotations():
            heeded.append(time)

    stay(node, rollout(DESIRED, drain_timeout_seconds=600), 2400, at)
    # What is left of the attempt, and a minute.
    assert heeded[0] - asked[0] < 720


@pytest.mark.failure_case(109)
def test_node_handed_to_another_pool_is_no_longer_enforced(node: LoopNode) -> None:
    node.label(role=None)
    node.runtime_pod("other")
    node.watched.clear()
    stay(node, mig(SEVEN), 120)
    assert node.watched == []


@pytest.mark.failure_case(103)
def test_released_node_sends_few_requests_during_the_uninstall(node: LoopNode) -> None:
    node.annotate(RELEASE_ANNOTATION, node.api.asking())
    stay(node, mig(SEVEN), 1300, lambda time: node.api.forget_requests() if time < 100 else None)
    assert len(node.api.requests) / 1200 < 0.1
