"""What the pool's DaemonSet says of nodes that fail: who may say it, when it counts no more, and that nothing depends on it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube.node_client import HEARTBEAT_SECONDS, NodeClient
from gpushare_node.contract.reasons import ConditionReason
from tests.node.adapters.kube.kube_fixture import FakeClock, server
from tests.support.fake_api.patches import merge
from tests.support.fake_api.server import ApiServer

NAME, STATUS = "gpushare-train", "PATCH /apis/apps/v1/namespaces/gpushare/daemonsets/gpushare-train/status"
FAILED, WAITS = ConditionReason.PARTITION_FAILED, ConditionReason.GPU_BUSY
Named = Callable[[str], NodeClient]


@pytest.fixture
def named(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[Named]:
    """The runtimes of nodes by name, each made anew whenever it is asked for, as after a restart."""
    api.add_daemonset(NAME, policy="0a1b2c3d")
    made = []

    def make(node: str) -> NodeClient:
        if all(one["metadata"]["name"] != node for one in api.all("nodes")):
            api.add_node(node)
        made.append(server(api, tmp_path, clock, node=node))
        return made[-1]

    yield make
    for one in made:
        one.close()


def said(api: ApiServer) -> list[tuple[str, str, str]]:
    """Type, reason and message of each condition of the DaemonSet."""
    conditions = api.get("daemonsets", NAME, namespace="gpushare")["status"].get("conditions", [])
    assert all(one["status"] == "False" and one["lastTransitionTime"] for one in conditions)
    return [(condition["type"], condition["reason"], condition["message"]) for condition in conditions]


def change_policy(api: ApiServer, policy: str) -> None:
    change: Any = {"spec": {"template": {"metadata": {"annotations": {"gpushare.dev/policy": policy}}}}}
    api.edit("daemonsets", NAME, lambda one: one.update(merge(one, change)), namespace="gpushare")


def test_failing_node_is_reported_with_its_reason_until_it_recovers(api: ApiServer, named: Named) -> None:
    node = named("n1")
    node.set_condition(FAILED, "the driver refused it")
    assert said(api) == [("GPUShareReady.0a1b2c3d", "PartitionFailed", "node n1: the driver refused it")]
    node.set_condition(ConditionReason.READY, "all is well")
    assert said(api) == []


@pytest.mark.parametrize("reason", [one for one in ConditionReason if not one.value.is_failure])
def test_waiting_or_ready_node_writes_no_failure_report(api: ApiServer, named: Named, reason: ConditionReason) -> None:
    named("n1").set_condition(reason, "")
    assert not any("daemonsets" in path for _, path in api.requests)


def test_only_one_of_many_failing_nodes_writes_the_failure_report(api: ApiServer, named: Named, clock: FakeClock) -> None:
    nodes = [named(f"n{at}") for at in range(5)]
    for node in nodes:
        node.set_condition(FAILED, "refused")
    assert [message for *_, message in said(api)] == ["node n0: refused"]
    assert sum(method == "PATCH" and "daemonsets" in path for method, path in api.requests) == 1
    nodes[0].set_condition(ConditionReason.READY, "")
    clock.sleep(HEARTBEAT_SECONDS)
    nodes[3].set_condition(FAILED, "refused")
    assert [message for *_, message in said(api)] == ["node n3: refused"], "a heartbeat names another one"


def test_only_the_reported_node_clears_the_failure_report(api: ApiServer, named: Named) -> None:
    first, second = named("n1"), named("n11")
    first.set_condition(FAILED, "refused")
    second.set_condition(FAILED, "refused")
    second.set_condition(ConditionReason.READY, "")
    assert [message for *_, message in said(api)] == ["node n1: refused"]


def test_restarted_runtime_clears_its_earlier_failure_report(api: ApiServer, named: Named) -> None:
    named("n1").set_condition(FAILED, "refused")
    named("n1").set_condition(WAITS, "a tenant works")
    assert said(api) == []


def test_released_node_clears_its_failure_report(api: ApiServer, named: Named) -> None:
    named("n1").set_condition(FAILED, "refused")
    named("n1").clear_condition()
    assert said(api) == []


def test_failure_report_of_a_previous_policy_is_replaced_by_the_next_one(api: ApiServer, named: Named) -> None:
    named("gone").set_condition(FAILED, "refused")
    change_policy(api, "4e5f6a7b")
    named("n1").set_condition(ConditionReason.INVALID_LAYOUT, "no room")
    assert said(api) == [("GPUShareReady.4e5f6a7b", "InvalidLayout", "node n1: no room")]


def test_foreign_daemonset_conditions_are_kept(api: ApiServer, named: Named) -> None:
    other = {"type": "Example", "status": "False", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    api.edit("daemonsets", NAME, lambda one: one["status"].update(conditions=[other]), namespace="gpushare")
    node = named("n1")
    node.set_condition(FAILED, "refused")
    node.set_condition(ConditionReason.READY, "")
    assert said(api) == [("Example", "X", "")]


def test_daemonset_without_a_policy_gets_no_failure_report(api: ApiServer, named: Named) -> None:
    change_policy(api, "")
    named("n1").set_condition(FAILED, "refused")
    assert said(api) == []


@pytest.mark.parametrize("status", [403, 404])
def test_refused_failure_report_is_retried_and_blocks_nothing(
    api: ApiServer, named: Named, clock: FakeClock, status: int
) -> None:
    node = named("n1")
    api.fail("daemonsets", status, times=1)
    node.set_condition(FAILED, "refused")
    assert (api.condition("n1") or {})["reason"] == "PartitionFailed"
    assert said(api) == []
    clock.sleep(HEARTBEAT_SECONDS)
    node.set_condition(FAILED, "refused")
    assert [message for *_, message in said(api)] == ["node n1: refused"]
    api.fail("daemonsets", status, times=1)
    node.set_condition(ConditionReason.READY, "")
    clock.sleep(HEARTBEAT_SECONDS)
    node.set_condition(ConditionReason.READY, "")
    assert said(api) == ([] if status != 404 else [("GPUShareReady.0a1b2c3d", "PartitionFailed", "node n1: refused")])


def test_no_failure_report_is_written_after_the_daemonset_is_deleted(api: ApiServer, named: Named) -> None:
    node = named("n1")
    api.remove("daemonsets", NAME, namespace="gpushare")
    node.set_condition(FAILED, "refused")
    node.set_condition(ConditionReason.READY, "")
    assert not any(method == "PATCH" and "daemonsets" in path for method, path in api.requests)
