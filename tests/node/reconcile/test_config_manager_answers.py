"""What AMD's config manager says of a request, when, and which of it counts."""

from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.amd_change import CPX, DIVIDED, SPX, WHOLE, at_peace, die_after_request, later, ready, skip
from tests.node.reconcile.amd_node import MANAGER, AmdNode
from tests.support.fake_amd.config_manager import STATE
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> AmdNode:
    return AmdNode(tmp_path, api)


def refuse(node: AmdNode, gpu: int, words: str = "AMDSMI_STATUS_BUSY") -> None:
    node.sysfs.gpus[gpu].refuses = words


def test_failure_is_not_the_managers_last_word(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    refuse(node, 1)
    later(node, 400.0, lambda: refuse(node, 1, ""))
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)
    assert node.manager.asked.count(DIVIDED.manager_config or "") == 1, "a new request would restart its half hour"


def test_a_profile_may_arrive_in_the_managers_file_after_the_request(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    profiles = node.manager.profiles
    node.manager.profiles = {WHOLE.manager_config or "": [("SPX", "NPS1")] * 2}
    later(node, 120.0, lambda: node.manager.read(profiles))
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_a_profile_that_the_managers_file_lacks_is_a_failure_after_some_minutes(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.profiles = {WHOLE.manager_config or "": [("SPX", "NPS1")] * 2}
    began = node.clock.time
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert (outcome.reason, "NonExistentProfile" in outcome.message) == (ConditionReason.CONFIG_MANAGER_FAILED, True)
    assert 180 < node.clock.time - began < 300


def test_the_success_of_an_older_request_is_not_believed(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.work_seconds = 300.0
    die_after_request(node)
    node.clock.sleep(20.0)
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)
    node.clock.sleep(900.0)
    assert (node.modes(), node.manager.is_idle) == (SPX, True)


@pytest.mark.parametrize("lost", ["label", "event", "both"])
def test_an_answer_that_is_lost_is_seen_on_the_gpus(node: AmdNode, lost: str) -> None:
    ready(node.run(WHOLE))
    node.clock.sleep(60.0)
    if lost != "event":
        node.manager.write = lambda *_: None
    if lost != "label":
        node.manager.tell = lambda *_: None
    began = node.clock.time
    ready(node.run(DIVIDED))
    assert (node.modes(), node.clock.time - began < 600) == (CPX, True)


def test_a_manager_that_never_answers_is_not_explained_by_an_earlier_event(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    refuse(node, 1, "AMDSMI_STATUS_AMDGPU_RESTART_ERR")
    node.manager.give_up_seconds = 120.0
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert "RESTART_ERR" in outcome.message
    node.manager.is_silent = True
    skip(node, 1800.0)
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert (outcome.reason, "has not answered for 1900 s" in outcome.message) == (ConditionReason.CONFIG_MANAGER_FAILED, True)
    assert "RESTART_ERR" not in outcome.message
    refuse(node, 1, "")
    node.manager.is_silent = False
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_release_waits_while_the_manager_tries_again(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    refuse(node, 1)
    node.manager.give_up_seconds = 300.0
    node.kill_when = lambda: node.labels().get(STATE) == "failure"
    node.run(DIVIDED)
    node.allowed = []
    outcome = node.release()
    assert outcome is not None
    assert (outcome.reason, node.taints(), node.manager.is_idle) == (ConditionReason.RELEASED, set(), True)


def test_release_without_the_managers_pod_waits_for_nothing(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.work_seconds = 600.0
    die_after_request(node)
    node.missing.add(MANAGER)
    node.remove(MANAGER)
    node.allowed, began = [], node.clock.time
    outcome = node.release()
    assert outcome is not None
    assert (outcome.reason, node.clock.time - began < 120) == (ConditionReason.RELEASED, True)


def test_release_ends_with_the_managers_pod_that_was_asked(node: AmdNode) -> None:
    """Its successor finds no label, and works on nothing."""
    ready(node.run(WHOLE))
    node.manager.work_seconds = 600.0
    die_after_request(node)
    later(node, 40.0, lambda: node.remove(MANAGER))
    node.allowed, began = [], node.clock.time
    outcome = node.release()
    assert outcome is not None
    assert (outcome.reason, node.clock.time - began < 240) == (ConditionReason.RELEASED, True)
    node.clock.sleep(900.0)
    assert (node.modes(), node.taints()) == (SPX, set())
