"""A pool of AMD's GPUs, which the config manager divides: asked by its label on a free node, and never taken at its word."""

import json
from pathlib import Path

import pytest

from gpushare_node.contract.policy import OnBusy, Partitioner, Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.contract.windows import Window
from gpushare_node.reconcile.observation import observe
from gpushare_node.vendors.amd.session import Session
from tests.node.reconcile import amd_node
from tests.node.reconcile.amd_change import (
    CPX,
    DIVIDED,
    FOREIGN,
    SPX,
    WHOLE,
    at_peace,
    die_after_request,
    later,
    mixed,
    ready,
    skip,
)
from tests.node.reconcile.amd_node import EXPORTER, LABELLER, MANAGER, NAME, OURS, PLUGIN, TAINT, AmdNode, amd
from tests.node.reconcile.loop_node import rollout
from tests.support.fake_amd.config_manager import LABEL, STATE
from tests.support.fake_amd.sysfs import hide_nodes
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> AmdNode:
    return AmdNode(tmp_path, api)


def test_a_new_node_is_divided_by_the_config_manager(node: AmdNode) -> None:
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)
    assert node.labels()[STATE] == "success"
    assert (node.labels()["gpushare.dev/pool"], node.labels()["gpushare.dev/vendor"]) == ("training", "amd")
    assert "request the layout from the config manager" in node.changed()


def test_an_unprivileged_container_is_enough(node: AmdNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.run(WHOLE)
    hide_nodes(monkeypatch)
    monkeypatch.setattr(amd_node, "offers", lambda *_: {"amd.com/gpu": [str(number) for number in range(16)]})
    ready(node.run(DIVIDED))
    assert (node.modes(), node.taints()) == (CPX, set())


def test_a_node_that_matches_is_only_verified(node: AmdNode) -> None:
    node.run(DIVIDED)
    node.api.forget_requests()
    ready(node.run(DIVIDED))
    assert [line for line, _ in node.api.writes() if "/events" not in line] == []
    assert node.manager.asked == [DIVIDED.manager_config]


def test_whole_gpus_are_named_to_the_config_manager_too(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)


def test_a_node_with_the_right_gpus_and_no_label_keeps_its_tenants(node: AmdNode) -> None:
    node.tenant("training", pid=100)
    ready(node.run(WHOLE))
    assert LABEL not in node.labels()
    node.end_tenant("training", pid=100)
    node.sysfs.end(900)
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)


def test_another_label_is_replaced_once_the_tenants_have_gone(node: AmdNode) -> None:
    node.tenant("training", pid=100)
    node.label(**{LABEL: "foreign"})
    outcome = node.run(rollout(WHOLE, drain_timeout_seconds=60))
    assert outcome is not None
    assert (outcome.reason, node.labels()[LABEL], node.taints()) == (ConditionReason.GPU_BUSY, "foreign", set())
    node.end_tenant("training", pid=100)
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)


def test_a_change_waits_for_tenants_and_leaves_them_alone(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.tenant("training", pid=100)
    outcome = node.run(rollout(DIVIDED, drain_timeout_seconds=60))
    assert outcome is not None
    assert (outcome.reason, "science/training" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert (node.modes(), node.taints(), node.labels()[LABEL]) == (SPX, set(), WHOLE.manager_config)
    assert node.offered() == dict(WHOLE.resources)
    ends = node.clock.time + 30
    node.on_tick = lambda time: node.end_tenant("training", pid=100) if time > ends else None
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_a_pool_that_evicts_does_not_wait(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.tenant("training")
    policy = rollout(DIVIDED, on_busy=OnBusy.EVICT)
    outcome = node.run(policy)
    if outcome is None or outcome.reason is not ConditionReason.READY:
        ready(node.run(policy))
    assert node.tenants() == []
    at_peace(node, DIVIDED, CPX)


def test_a_client_that_stays_is_named_and_the_node_is_as_before(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.tolerant.add(EXPORTER)
    skip(node, 800.0)
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert (outcome.reason, "process 900" in outcome.message) == (ConditionReason.CLIENTS_RUNNING, True)
    assert (node.modes(), node.taints(), node.labels()[LABEL]) == (SPX, set(), WHOLE.manager_config)
    assert node.manager.asked == [WHOLE.manager_config]


def test_a_plugin_that_tolerates_the_taint_is_started_anew(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.tolerant |= {PLUGIN, LABELLER}
    before = node.pod_uid(PLUGIN), node.pod_uid(LABELLER)
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)
    assert node.pod_uid(PLUGIN) != before[0]
    assert node.pod_uid(LABELLER) != before[1]


def test_the_answer_to_an_earlier_request_is_not_taken_for_the_new_one(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.clock.sleep(60.0)
    assert node.labels()[STATE] == "success"
    node.manager.work_seconds = 120.0
    began = node.clock.time
    ready(node.run(DIVIDED))
    assert node.clock.time - began > 120
    at_peace(node, DIVIDED, CPX)


def test_an_answer_to_a_cancelled_request_is_not_the_last_word(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    asked_at: list[float] = []

    def answer_too_early(time: float) -> None:
        if node.labels().get(LABEL) == DIVIDED.manager_config and not asked_at:
            asked_at.append(time)
            node.label(**{STATE: "success"})

    node.on_tick = answer_too_early
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_one_gpu_that_refuses_is_a_failure_with_the_managers_reason(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.sysfs.gpus[1].refuses, node.manager.give_up_seconds = "AMDSMI_STATUS_AMDGPU_RESTART_ERR", 120.0
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert outcome.reason is ConditionReason.CONFIG_MANAGER_FAILED
    assert "PartitionFailure; GPU 1: Partition failed with reason: AMDSMI_STATUS_AMDGPU_RESTART_ERR" in outcome.message
    assert (node.taints(), node.condition()) == ({TAINT, OURS}, "ConfigManagerFailed")
    node.sysfs.gpus[1].refuses = ""
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)
    assert node.manager.asked[-2:] == [DIVIDED.manager_config] * 2, "the manager notices only a value that changes"


def test_success_is_verified_on_the_hardware(node: AmdNode) -> None:
    node.manager.skips = frozenset({1})
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert outcome.reason is ConditionReason.CONFIG_MANAGER_FAILED
    assert "reports success, but GPU 1 has SPX/NPS1" in outcome.message
    assert node.taints() == {TAINT, OURS}
    node.manager.skips = frozenset()
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_a_node_without_the_manager_says_so(node: AmdNode) -> None:
    node.missing.add(MANAGER)
    die_after_request(node)
    node.clock.time += 1900.0
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert "no pod device-config-manager is on the node" in outcome.message


def test_a_label_that_another_program_changes_meanwhile_is_a_conflict(node: AmdNode) -> None:
    node.on_tick = lambda _: node.label(**{LABEL: "foreign"}) if node.labels().get(LABEL) == DIVIDED.manager_config else None
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert (outcome.reason, "kubectl-label" in outcome.message) == (ConditionReason.LABEL_CONFLICT, True)
    assert node.condition() == "LabelConflict"
    node.on_tick = lambda _: None
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


@pytest.mark.parametrize(("foreign", "policy"), [(None, WHOLE), (FOREIGN, DIVIDED)], ids=["removed", "other"])
def test_after_a_conflict_the_manager_is_still_awaited(node: AmdNode, foreign: str | None, policy: Policy) -> None:
    """It goes on with what was requested, and then with what another program requests."""
    ready(node.run(WHOLE))
    node.manager.work_seconds = 120.0
    meddles = node.clock.time + 40.0
    node.on_tick = lambda time: node.label(**{LABEL: foreign}) if int(time) == int(meddles) else None
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert outcome.reason is ConditionReason.LABEL_CONFLICT
    modes = CPX if policy is DIVIDED else SPX
    ready(node.run(policy))
    at_peace(node, policy, modes)
    node.clock.sleep(900.0)
    assert node.modes() == modes


@pytest.mark.parametrize("seconds", [-7200.0, 7200.0])
def test_a_clock_that_is_set_meanwhile_ends_no_wait(node: AmdNode, seconds: float) -> None:
    ready(node.run(WHOLE))
    node.clock.sleep(60.0)
    later(node, 15.0, lambda: setattr(node, "wrong_by", seconds))
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_after_a_reboot_the_gpus_are_divided_again(node: AmdNode) -> None:
    ready(node.run(DIVIDED))
    node.sysfs.start(1)  # the manager's own attempt fails: a client is there first
    node.reboot()
    node.sysfs.start(1)
    assert node.modes() == SPX
    node.sysfs.end(1)
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_a_policy_that_returns_in_the_middle_of_a_change_is_asked_for_as_well(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.work_seconds = 600.0
    die_after_request(node)
    assert (node.labels()[LABEL], node.modes()) == (DIVIDED.manager_config, SPX)
    node.manager.work_seconds = 30.0
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)
    assert node.manager.asked[-1] == WHOLE.manager_config


def test_a_gpu_that_cannot_be_read_stops_the_change(node: AmdNode) -> None:
    (node.sysfs.gpu_folder(1) / "current_memory_partition").unlink()
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert outcome.reason is ConditionReason.GPU_UNREADABLE
    assert LABEL not in node.labels()


def test_a_mode_that_the_driver_lacks_is_no_request(node: AmdNode) -> None:
    outcome = node.run(amd("CPX", "NPS8"))
    assert outcome is not None
    assert (outcome.reason, "does not offer NPS8" in outcome.message) == (ConditionReason.INVALID_LAYOUT, True)
    assert LABEL not in node.labels()


def test_without_a_config_manager_modes_are_compared_and_reported(node: AmdNode) -> None:
    def plain(policy: Policy) -> Policy:
        return replace(policy, partitioner=Partitioner.NONE, manager_config=None)

    outcome = node.run(plain(DIVIDED))
    assert outcome is not None
    assert outcome.reason is ConditionReason.PARTITION_MISMATCH
    assert "GPU 0: it has SPX/NPS1; the pool is for CPX/NPS4" in outcome.message
    ready(node.run(plain(WHOLE)))
    assert (LABEL in node.labels(), node.taints(), node.labels()["gpushare.dev/pool"]) == (False, set(), "training")


def test_a_node_that_is_only_observed_says_what_the_manager_would_be_asked(node: AmdNode) -> None:
    deps = node.deps("training")
    surveys = Session.open(node.sysfs.root).survey()
    found = json.loads(observe(DIVIDED, surveys, deps.cluster.node(), deps.cluster.pods(), deps.backend).would)
    assert found["gpus"] == {"0": ["divide by CPX/NPS4"], "1": ["divide by CPX/NPS4"]}
    assert found["labels"][LABEL] == DIVIDED.manager_config
    assert (found["taints"], found["resources"]) == ([TAINT], {"amd.com/gpu": 16})


@pytest.mark.parametrize(("here", "taints"), [(None, []), ("foreign", [TAINT])])
def test_a_node_that_is_only_observed_would_be_tainted_for_another_name_alone(
    node: AmdNode, here: str | None, taints: list[str]
) -> None:
    node.label(**{LABEL: here})
    deps = node.deps("training")
    surveys = Session.open(node.sysfs.root).survey()
    found = json.loads(observe(WHOLE, surveys, deps.cluster.node(), deps.cluster.pods(), deps.backend).would)
    assert (found["labels"][LABEL], found.get("taints", [])) == (WHOLE.manager_config, taints)


def test_release_removes_labels_and_taints_and_leaves_the_modes(node: AmdNode) -> None:
    ready(node.run(DIVIDED))
    node.tenant("training", pid=100)
    node.label(role="cpu")
    outcome = node.release()
    assert outcome is not None
    assert outcome.reason is ConditionReason.RELEASED
    assert (node.modes(), node.taints(), node.tenants()) == (CPX, set(), ["training"])
    assert not any(name.startswith(("gpushare.dev/", "dcm.amd.com/")) for name in node.labels())
    assert node.condition() is None


def test_a_label_of_somebody_else_stays_at_a_release(node: AmdNode) -> None:
    node.label(**{LABEL: WHOLE.manager_config, STATE: "success"})
    ready(node.run(WHOLE))
    node.release()
    assert node.labels()[LABEL] == WHOLE.manager_config


def test_release_in_the_middle_of_a_change_waits_for_the_manager(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.work_seconds = 600.0
    die_after_request(node)
    node.allowed = []
    outcome = node.release()
    assert outcome is not None
    assert outcome.reason is ConditionReason.RELEASED
    assert (node.modes(), node.taints()) == (CPX, set())


@pytest.mark.parametrize("at", range(2, 14, 3))
def test_a_run_that_is_killed_before_a_write_is_finished_by_the_next(tmp_path: Path, api: ApiServer, at: int) -> None:
    node = AmdNode(tmp_path, api, gpus=1)
    node.manager.work_seconds, node.start_seconds = 2.0, 1.0
    target = amd("CPX", "NPS4", gpus=1)
    assert node.run(target, kill_at=at) is None
    ready(node.run(target))
    at_peace(node, target, ["CPX/NPS4"])


# A node that offers.


def test_a_node_in_service_is_not_emptied_for_a_name(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.label(**{LABEL: None, STATE: None})
    for _ in range(2):
        ready(node.run(rollout(WHOLE, is_paused=True)))
        assert not {"taint", "request the layout from the config manager"} & set(node.changed())
        assert node.offered() == dict(WHOLE.resources)


def test_another_label_is_replaced_only_as_the_rollout_allows(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.clock.sleep(60.0)
    node.label(**{LABEL: "foreign"})
    outcome = node.run(rollout(WHOLE, is_paused=True))
    assert outcome is not None
    assert (outcome.reason, node.taints()) == (ConditionReason.ROLLOUT_PAUSED, set())
    assert node.offered() == dict(WHOLE.resources)
    ready(node.run(WHOLE))
    at_peace(node, WHOLE, SPX)


@pytest.mark.parametrize(("left", "is_changed"), [(3000, False), (3900, True)])
def test_a_change_fits_into_its_window(node: AmdNode, left: int, is_changed: bool) -> None:
    ready(node.run(WHOLE))
    opened = int(node.wall()) // 60 % (24 * 60)
    window = Window(start=f"{opened // 60:02}:{opened % 60:02}", duration_seconds=left + 60)
    outcome = node.run(rollout(DIVIDED, drain_timeout_seconds=0, windows=(window,)))
    assert outcome is not None
    assert (outcome.reason is ConditionReason.READY, node.modes() == CPX) == (is_changed, is_changed)


def test_a_process_of_the_host_is_named_before_anything_is_sent_away(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.sysfs.start(7)
    node.units[7] = "trainer.service"
    plugin, began = node.pod_uid(PLUGIN), node.clock.time
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert (outcome.reason, "process 7" in outcome.message) == (ConditionReason.CLIENTS_RUNNING, True)
    assert (node.taints(), node.pod_uid(PLUGIN), node.clock.time - began < 60) == (set(), plugin, True)


def test_the_hosts_services_that_the_manager_stops_block_no_change(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.sysfs.start(7)
    node.units[7] = "amd-metrics-exporter.service"
    node.manager.services = frozenset({7})
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


def test_no_label_is_written_if_a_process_comes_while_it_is_absent(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.on_tick = lambda _: node.sysfs.start(77) if LABEL not in node.labels() else None
    outcome = node.run(DIVIDED)
    assert outcome is not None
    assert outcome.reason is ConditionReason.CLIENTS_RUNNING
    assert (LABEL in node.labels(), node.taints(), node.modes()) == (False, set(), SPX)
    node.on_tick = lambda _: None
    node.sysfs.end(77)
    ready(node.run(DIVIDED))
    at_peace(node, DIVIDED, CPX)


@pytest.mark.parametrize("policy", [WHOLE, replace(WHOLE, partitioner=Partitioner.NONE, manager_config=None)])
def test_an_administrators_taint_stays(node: AmdNode, policy: Policy) -> None:
    ready(node.run(policy))
    mine = {"key": TAINT, "value": "up", "effect": "NoExecute"}
    node.api.edit("nodes", NAME, lambda one: one["spec"].__setitem__("taints", [mine]))
    node.run(policy)
    assert node.taints() == {TAINT}


# Another policy meanwhile.


def unmanaged(policy: Policy) -> Policy:
    return replace(policy, partitioner=Partitioner.NONE, manager_config=None)


def test_a_pool_without_the_manager_awaits_what_was_requested(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.manager.work_seconds = 600.0
    die_after_request(node)
    outcome = node.run(unmanaged(WHOLE))
    assert outcome is not None
    assert (outcome.reason, node.modes()) == (ConditionReason.PARTITION_MISMATCH, CPX)
    ready(node.run(unmanaged(DIVIDED)))
    assert (node.taints(), LABEL in node.labels(), node.offered()) == (set(), False, dict(DIVIDED.resources))


def test_a_pool_without_the_manager_keeps_no_taint_of_its(node: AmdNode) -> None:
    ready(node.run(WHOLE))
    node.kill_when = lambda: TAINT in node.taints()
    node.run(DIVIDED)
    ready(node.run(unmanaged(WHOLE)))
    assert (node.taints(), LABEL in node.labels()) == (set(), False)


def test_a_plugin_that_has_read_the_former_modes_is_started_anew(node: AmdNode) -> None:
    node.strategy = "mixed"
    policy = mixed(DIVIDED)
    ready(node.run(policy))
    node.missing.add(EXPORTER)
    node.reboot()
    node.remove(EXPORTER)
    node.clock.sleep(120.0)
    assert (node.modes(), node.offered()) == (CPX, {"amd.com/spx_nps1": 2})
    ready(node.run(policy))
    assert node.offered() == dict(policy.resources)
