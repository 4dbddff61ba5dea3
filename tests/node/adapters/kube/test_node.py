"""What is written on the node: labels with owners, taints without harm to others, one condition, and never more than needed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.adapters.kube.cluster import Cluster, ClusterError, EventType, Taint
from gpushare_node.adapters.kube.cluster import Event as Told
from gpushare_node.adapters.kube.node_client import HEARTBEAT_SECONDS, NodeClient
from gpushare_node.contract.reasons import ConditionReason
from tests.node.adapters.kube.kube_fixture import FakeClock, server
from tests.support.fake_api.patches import merge
from tests.support.fake_api.server import ApiServer

LABELS = {"gpushare.dev/pool": "train", "gpushare.dev/profile": "mig-0a1b2c3d"}
FOREIGN = {"key": "maintenance", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}
OURS = Taint(key="gpushare.dev/repartitioning", effect="NoSchedule")


@pytest.fixture
def here(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[NodeClient]:
    api.add_node("n1", labels={"team": "a"}, taints=[FOREIGN], allocatable={"nvidia.com/gpu": 8, "example.com/x": 1})
    made = server(api, tmp_path, clock)
    yield made
    made.close()


def test_every_method_reaches_the_server() -> None:
    assert {name for name in vars(Cluster) if not name.startswith("_")} <= vars(NodeClient).keys()


def test_node_is_read_with_its_labels_taints_and_allocatable_resources(api: ApiServer, here: NodeClient) -> None:
    node = here.node()
    assert (node.name, node.uid) == ("n1", api.node("n1")["metadata"]["uid"])
    assert node.allocatable == {"nvidia.com/gpu": 8}
    assert node.taints == (Taint(key="maintenance", effect="NoExecute"),)
    assert node.labels["team"] == "a"


def test_labels_are_owned_exactly(api: ApiServer, here: NodeClient) -> None:
    here.apply_labels({**LABELS, "nvidia.com/mig.config": "x"})
    here.apply_labels(LABELS)
    node = here.node()
    assert node.labels == {"kubernetes.io/hostname": "n1", "team": "a", **LABELS}
    assert node.owners == dict.fromkeys(LABELS, "gpushare")
    here.apply_labels({})
    assert api.node("n1")["metadata"]["labels"] == {"kubernetes.io/hostname": "n1", "team": "a"}


def test_overwritten_label_reports_its_owner_and_is_reclaimed(api: ApiServer, here: NodeClient) -> None:
    here.apply_labels(LABELS)
    api.patch("nodes", "n1", {"metadata": {"labels": {"gpushare.dev/profile": "other"}}}, manager="kubectl-label")
    assert here.node().owners["gpushare.dev/profile"] == "kubectl-label"
    here.apply_labels(LABELS)
    assert here.node().labels["gpushare.dev/profile"] == "mig-0a1b2c3d"
    assert here.node().owners["gpushare.dev/profile"] == "gpushare"


def test_label_also_applied_by_another_manager_is_kept_on_release(api: ApiServer, here: NodeClient) -> None:
    here.apply_labels(LABELS)
    api.apply("nodes", "n1", {"metadata": {"labels": {"gpushare.dev/pool": "train"}}}, manager="terraform")
    assert here.node().owners["gpushare.dev/pool"] == "gpushare"
    here.apply_labels({})
    assert here.node().labels["gpushare.dev/pool"] == "train"
    assert here.node().owners == {"gpushare.dev/pool": "terraform"}


def test_applying_labels_does_not_recreate_a_deleted_node(api: ApiServer, here: NodeClient) -> None:
    api.before("PATCH /api/v1/nodes", lambda: api.remove("nodes", "n1"))
    with pytest.raises(ClusterError, match="uid mismatch"):
        here.apply_labels(LABELS)
    assert api.all("nodes") == []


def test_applying_labels_never_touches_a_new_node_of_the_same_name(api: ApiServer, here: NodeClient) -> None:
    def replace() -> None:
        api.remove("nodes", "n1")
        api.add_node("n1")

    api.before("PATCH /api/v1/nodes", replace)
    with pytest.raises(ClusterError, match="immutable"):
        here.apply_labels(LABELS)
    assert "gpushare.dev/pool" not in api.node("n1")["metadata"]["labels"]


def test_unchanged_values_are_not_written_again(api: ApiServer, here: NodeClient) -> None:
    def write_everything() -> None:
        here.apply_labels(LABELS)
        here.write_labels({"nvidia.com/gpu.deploy.dcgm": "paused", "absent": None})
        here.annotate({"gpushare.dev/released": "exclusive", "absent": None})
        here.change_taints(add=[OURS], remove=["gpushare.dev/not-ready"])
        here.set_condition(ConditionReason.PARTITIONING, "two GPUs")

    write_everything()
    before = api.writes()
    assert len(before) == 5
    write_everything()
    assert api.writes() == before


def test_foreign_labels_are_written_without_owning_them(api: ApiServer, here: NodeClient) -> None:
    here.write_labels({"nvidia.com/gpu.deploy.dcgm": "paused"})
    here.apply_labels(LABELS)
    here.apply_labels({})
    assert here.node().labels["nvidia.com/gpu.deploy.dcgm"] == "paused"
    here.write_labels({"nvidia.com/gpu.deploy.dcgm": None})
    assert "nvidia.com/gpu.deploy.dcgm" not in here.node().labels


def test_foreign_taints_keep_their_order_and_fields(api: ApiServer, here: NodeClient) -> None:
    here.change_taints(add=[OURS])
    here.change_taints(add=[Taint(key="gpushare.dev/not-ready", effect="NoSchedule", value="a")])
    here.change_taints(add=[Taint(key="gpushare.dev/not-ready", effect="NoSchedule", value="b")], remove=[OURS.key])
    ours = {"key": "gpushare.dev/not-ready", "effect": "NoSchedule", "value": "b"}
    assert api.node("n1")["spec"]["taints"] == [FOREIGN, ours]
    here.change_taints(remove=["gpushare.dev/not-ready"])
    assert api.node("n1")["spec"]["taints"] == [FOREIGN]


def test_concurrently_added_taint_is_kept(api: ApiServer, here: NodeClient) -> None:
    other = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    api.before("PATCH /api/v1/nodes", lambda: api.edit("nodes", "n1", lambda node: node["spec"]["taints"].append(other)))
    here.change_taints(add=[OURS])
    assert api.node("n1")["spec"]["taints"] == [FOREIGN, other, {"key": OURS.key, "effect": "NoSchedule"}]


def test_concurrent_status_write_by_kubelet_does_not_block_a_taint_change(api: ApiServer, here: NodeClient) -> None:
    other = {"type": "Ready", "status": "True"}
    api.before("PATCH /api/v1/nodes", lambda: api.edit("nodes", "n1", lambda node: node["status"].update(conditions=[other])))
    here.change_taints(add=[OURS])
    assert len(api.writes()) == 1


def test_taint_added_concurrently_to_an_untainted_node_is_kept(api: ApiServer, here: NodeClient) -> None:
    other = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    api.edit("nodes", "n1", lambda node: node["spec"].pop("taints"))
    api.before("PATCH /api/v1/nodes", lambda: api.edit("nodes", "n1", lambda node: node["spec"].update(taints=[other])))
    here.change_taints(add=[OURS])
    assert api.node("n1")["spec"]["taints"] == [other, {"key": OURS.key, "effect": "NoSchedule"}]


def test_constantly_changing_taints_raise_an_error_instead_of_looping(api: ApiServer, here: NodeClient) -> None:
    def touch() -> None:
        other = {"key": "example.org/other", "effect": "NoSchedule", "value": api.node("n1")["metadata"]["resourceVersion"]}
        api.edit("nodes", "n1", lambda node: node["spec"].update(taints=[FOREIGN, other]))

    api.before("PATCH /api/v1/nodes", touch, times=-1)
    with pytest.raises(ClusterError, match="422"):
        here.change_taints(add=[OURS])
    assert len(api.writes()) == 5


def test_taint_rejected_as_invalid_is_not_retried(api: ApiServer, here: NodeClient) -> None:
    api.fail("PATCH /api/v1/nodes", 422)
    with pytest.raises(ClusterError, match="422"):
        here.change_taints(add=[OURS])
    assert len(api.writes()) == 1


def test_the_condition_moves_its_time_only_when_its_status_changes(api: ApiServer, here: NodeClient) -> None:
    here.set_condition(ConditionReason.PARTITIONING, "one")
    api.edit("nodes", "n1", lambda node: node["status"]["conditions"][-1].update(lastTransitionTime="2020-01-01T00:00:00Z"))
    here.set_condition(ConditionReason.WAITING_FOR_PLUGIN, "two")
    assert api.condition("n1") == {
        **(api.condition("n1") or {}),
        "status": "False",
        "reason": "WaitingForPlugin",
        "message": "two",
        "lastTransitionTime": "2020-01-01T00:00:00Z",
    }
    here.set_condition(ConditionReason.READY, "")
    now = api.condition("n1") or {}
    assert (now["status"], now["reason"]) == ("True", "Ready")
    assert now["lastTransitionTime"] > "2020"
    assert api.condition("n1", "Ready") is not None


def test_condition_heartbeat_is_written_every_ten_minutes(api: ApiServer, here: NodeClient, clock: FakeClock) -> None:
    here.set_condition(ConditionReason.READY, "")
    since = (api.condition("n1") or {})["lastTransitionTime"]
    api.forget_requests()
    for _ in range(599):
        clock.seconds += 1
        here.set_condition(ConditionReason.READY, "")
    assert api.requests == []
    clock.seconds += HEARTBEAT_SECONDS
    here.set_condition(ConditionReason.READY, "")
    assert [method for method, _ in api.requests] == ["PATCH"]
    assert (api.condition("n1") or {})["lastTransitionTime"] == since


def test_restarted_runtime_does_not_rewrite_an_unchanged_condition(api: ApiServer, here: NodeClient, tmp_path: Path) -> None:
    here.set_condition(ConditionReason.READY, "")
    api.forget_requests()
    again = server(api, tmp_path)
    again.set_condition(ConditionReason.READY, "")
    assert api.writes() == []
    again.close()


def test_clearing_the_condition_keeps_the_other_conditions(api: ApiServer, here: NodeClient) -> None:
    here.set_condition(ConditionReason.RELEASED, "")
    here.clear_condition()
    assert api.condition("n1") is None
    assert api.condition("n1", "Ready") is not None
    api.forget_requests()
    here.clear_condition()
    assert api.writes() == []


@pytest.mark.failure_case(29)
@pytest.mark.parametrize("answers", [1, 3], ids=["once", "at every attempt"])
def test_condition_written_with_a_lost_response_is_later_replaced(api: ApiServer, here: NodeClient, answers: int) -> None:
    here.set_condition(ConditionReason.READY, "")
    api.lose("PATCH /api/v1/nodes", answers)
    with contextlib.suppress(ClusterError):
        here.set_condition(ConditionReason.ENFORCEMENT_BLIND, "for a moment")
    assert (api.condition("n1") or {})["reason"] == "EnforcementBlind"
    here.set_condition(ConditionReason.READY, "")
    assert (api.condition("n1") or {})["reason"] == "Ready"


@pytest.mark.failure_case(29)
def test_condition_is_set_again_after_a_removal_with_a_lost_response(api: ApiServer, here: NodeClient) -> None:
    here.set_condition(ConditionReason.READY, "")
    api.lose("PATCH /api/v1/nodes")
    api.fail("PATCH /api/v1/nodes", 503)
    with pytest.raises(ClusterError):
        here.clear_condition()
    api.heal()
    assert api.condition("n1") is None
    here.set_condition(ConditionReason.READY, "")
    assert (api.condition("n1") or {})["reason"] == "Ready"


@pytest.mark.failure_case(29)
def test_failed_condition_write_is_repeated_when_the_server_is_back(api: ApiServer, here: NodeClient) -> None:
    api.down()
    with pytest.raises(ClusterError):
        here.set_condition(ConditionReason.READY, "")
    here.record_event(Told(type=EventType.NORMAL, reason="Partitioned", message="all"))
    api.up()
    here.set_condition(ConditionReason.READY, "")
    assert (api.condition("n1") or {})["reason"] == "Ready"


def test_own_pod_is_deleted_but_not_a_new_pod_of_the_same_name(api: ApiServer, here: NodeClient) -> None:
    api.add_pod("gpushare-train-n1", namespace="gpushare", node="n1", uid="uid-n1")
    here.delete_own_pod()
    assert here.pods() == ()
    here.delete_own_pod()
    api.add_pod("gpushare-train-n1", namespace="gpushare", node="n1", uid="another")
    here.delete_own_pod()
    assert len(here.pods()) == 1


def test_missing_or_terminating_daemonset_selects_no_node(api: ApiServer, here: NodeClient) -> None:
    assert not here.selects(here.node())
    api.add_daemonset("gpushare-train", terms=[{"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]}])
    assert here.selects(here.node())
    gone = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    api.edit("daemonsets", "gpushare-train", lambda one: one.update(merge(one, gone)), namespace="gpushare")
    assert not here.selects(here.node())


def test_an_error_of_the_server_is_not_taken_for_a_missing_daemonset(api: ApiServer, here: NodeClient) -> None:
    api.fail("daemonsets", 403)
    with pytest.raises(ClusterError):
        here.selects(here.node())


def test_a_rollout_of_one_node_takes_eight_writes(api: ApiServer, here: NodeClient) -> None:
    assert here.take_slot(1).is_held
    here.change_taints(add=[OURS])
    here.set_condition(ConditionReason.PARTITIONING, "")
    here.apply_labels(LABELS)
    here.set_condition(ConditionReason.WAITING_FOR_PLUGIN, "")
    here.change_taints(remove=[OURS.key, "gpushare.dev/not-ready"])
    here.set_condition(ConditionReason.READY, "")
    here.renew_slot()
    here.release_slot()
    assert len(api.writes()) == 8
