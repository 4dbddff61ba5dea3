"""The worlds outside when they fail: GPU clients, the API server, the plugin, label writers, a lost GPU, reboots, signals."""

from contextlib import suppress
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.adapters.kube.cluster import PLUGIN_LABEL
from gpushare_node.contract.names import POOL_LABEL, REPARTITIONING_TAINT
from gpushare_node.contract.policy import Stack
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import Stopped
from gpushare_node.core.desired_policy import DesiredPolicy
from gpushare_node.reporting.outcome import StepResult
from tests.node.gpus.gpu_node import H100
from tests.node.reconcile.loop_node import DEPLOY, NAME, PLUGIN_POD, SEVEN, TWO, LoopNode, mig, rollout, text_of, whole
from tests.support import scale
from tests.support.fake_api.server import ApiServer

DCGM = "nvidia.com/gpu.deploy.dcgm"


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    return LoopNode(tmp_path, api)


def add_plugin_pod(node: LoopNode) -> None:
    node.program(PLUGIN_POD, "nvidia-device-plugin-daemonset")


def test_unwritable_state_dir_is_reported_and_no_gpu_is_changed(node: LoopNode) -> None:
    # A folder where the journal goes: root, too, cannot put a file in its place.
    (node.folder.path / "journal.json").mkdir(parents=True)
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is ConditionReason.STATE_UNWRITABLE
    assert "cannot be written" in outcome.message
    assert node.condition() == "StateUnwritable"
    assert node.fake_nvml.calls() == []


# GPU clients.


def test_clients_are_paused_around_the_change_and_brought_back(node: LoopNode) -> None:
    node.label(**{DCGM: "false"})
    add_plugin_pod(node)
    seen = []
    node.before_step = lambda result: seen.append((result.step, node.labels()[DEPLOY]))
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert {value for step, value in seen if step.startswith(("create", "switch"))} == {"paused-for-mig-change"}
    assert (node.labels()[DEPLOY], node.labels()[DCGM]) == ("true", "false")


def test_clients_that_do_not_stop_are_reported_and_resumed(node: LoopNode) -> None:
    node.program("dcgm-x", "nvidia-dcgm")
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, "gpu-operator/dcgm-x" in outcome.message) == (ConditionReason.CLIENTS_RUNNING, True)
    assert node.labels()[DEPLOY] == "true"
    assert node.fake_nvml.calls() == []
    assert node.taints() == set()
    assert node.holds_slot()


@pytest.mark.parametrize("has_note", [True, False], ids=["with its note", "with its note lost"])
def test_a_pause_that_a_crash_has_left_ends_with_the_next_run(node: LoopNode, has_note: bool) -> None:
    node.run(whole())
    node.label(**{DEPLOY: "paused-for-mig-change"})
    if has_note:
        node.folder.write_journal(Journal(policy_digest="other", boot_id="boot-1", paused={DEPLOY: "true"}))
    assert node.run(whole()).reason is ConditionReason.READY
    assert node.labels()[DEPLOY] == "true"
    assert node.folder.journal() is None


def test_clients_are_not_paused_without_the_operator(node: LoopNode) -> None:
    node.is_plugin_dead = True
    node.on_tick = lambda _: node.enumerate()
    seen = []
    node.before_step = lambda result: seen.append(node.labels()[DEPLOY])
    assert node.run(replace(mig(SEVEN), stack=Stack.DEVICE_PLUGIN)).reason is ConditionReason.READY
    assert set(seen) == {"true"}


def test_change_that_only_creates_instances_pauses_no_clients(node: LoopNode) -> None:
    node.fake_nvml.set_mode(0, True)
    node.run(mig(SEVEN))
    assert "pause GPU clients" not in [result.step for result in node.results]


# The API server.


@pytest.mark.failure_case(29)
def test_without_an_api_server_the_current_layout_is_restored(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.gpus.reboot()
    node.api.down()
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.WAITING_FOR_PLUGIN, False)
    assert node.gpus.stands(0) == set(SEVEN)
    node.on_tick = lambda time: node.api.up() if time > 300 else None
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"


@pytest.mark.failure_case(29)
def test_node_in_its_desired_layout_needs_no_api_server(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.api.down()
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.READY, True)


@pytest.mark.failure_case(29)
def test_without_an_api_server_allocations_in_the_checkpoint_are_respected(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.folder.keep_policy(text_of(mig(TWO)))
    node.fake_nvml.forget_calls()
    node.api.down()
    assert node.run(mig(TWO)).reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(29)
def test_without_an_api_server_a_new_policy_waits(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.fake_nvml.forget_calls()
    node.api.down()
    assert not node.run(mig(TWO)).is_usable
    assert node.fake_nvml.calls() == []


def test_standalone_run_sets_no_labels_or_taints(node: LoopNode) -> None:
    node.api.forget_requests()
    outcome = node.run(mig(SEVEN), cluster=False)
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.READY, True)
    assert node.gpus.stands(0) == set(SEVEN)
    assert node.folder.policy() == text_of(mig(SEVEN))
    assert node.api.requests == []


def test_api_server_outage_during_the_drain_stops_the_change(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    node.fake_nvml.forget_calls()
    start = node.clock.now()
    node.on_tick = lambda time: node.api.down() if time > start + 20 else None
    outcome = node.run(rollout(mig(TWO), drain_timeout_seconds=60))
    assert not outcome.is_usable
    assert node.fake_nvml.calls() == []


# The plugin and other writers.


def test_plugin_that_advertises_stale_ids_is_made_to_reenumerate(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.registered = {"nvidia.com/mig-1g.5gb": ["MIG-dead"]}
    node.publish()
    assert node.run(mig(SEVEN)).reason is ConditionReason.READY
    assert node.labels()[PLUGIN_LABEL] == "mig-00000001-b"


def test_unresponsive_plugin_is_reported_and_the_taint_is_kept(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.is_plugin_deaf = True
    outcome = node.run(mig(TWO))
    assert outcome.reason is ConditionReason.WAITING_FOR_PLUGIN
    assert "do not exist" in outcome.message
    assert node.taints() == {REPARTITIONING_TAINT}
    assert node.condition() == "WaitingForPlugin"
    assert node.changed().count("labels") == 4
    node.is_plugin_deaf = False
    assert node.run(mig(TWO)).reason is ConditionReason.READY
    assert node.taints() == set()


def test_unexpected_advertised_resources_are_reported(node: LoopNode) -> None:
    def add(shown) -> None:
        shown["status"]["allocatable"]["nvidia.com/gpu"] = "1"
        shown["status"]["allocatable"]["nvidia.com/hostdev"] = "1"

    publish = node.publish

    def publish_both() -> None:
        publish()
        node.api.edit("nodes", NAME, add)

    node.publish = publish_both  # type: ignore[method-assign]
    outcome = node.run(mig(SEVEN))
    assert outcome.reason is ConditionReason.WRONG_RESOURCES
    assert "nvidia.com/gpu: 1 instead of 0" in outcome.message
    assert "hostdev" not in outcome.message


def test_other_writer_of_our_label_is_reported_and_not_fought(node: LoopNode) -> None:
    node.run(whole(replicas=4))
    writer = node.server()

    def write(_: float) -> None:
        if node.labels()[PLUGIN_LABEL] != "theirs":
            writer.write_labels({PLUGIN_LABEL: "theirs"})

    writer.write_labels({PLUGIN_LABEL: "theirs"})
    node.on_tick = write
    node.before_step = lambda result: write(0.0) if result.step == "labels" else None
    start = node.clock.now()
    outcome = node.run(whole(replicas=4))
    assert outcome.reason is ConditionReason.LABEL_CONFLICT
    assert "gpushare-node" in outcome.message, "the name under which the test writes"
    minutes = (node.clock.now() - start) / 60
    assert node.changed().count("labels") <= minutes + 2


# GPUs.


@pytest.mark.failure_case(20)
def test_node_with_a_lost_gpu_stays_usable(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, "a100-sxm4-40gb", "a100-sxm4-40gb")
    node.run(mig(SEVEN, SEVEN))
    node.fake_nvml.lose(1)
    node.count = 1
    node.enumerate()
    outcome = node.run(mig(SEVEN, SEVEN))
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.GPU_LOST, True)
    assert node.condition() == "GpuLost"
    assert node.taints() == set()


def test_node_with_another_card_is_unchanged(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, H100)
    outcome = node.run(mig(SEVEN))
    assert (outcome.reason, outcome.is_usable) == (ConditionReason.CARD_MISMATCH, False)
    assert node.fake_nvml.calls() == []
    assert (node.taints(), node.labels().get(POOL_LABEL)) == (set(), None)


@pytest.mark.failure_case(21)
def test_missing_driver_is_reported_after_ten_minutes(node: LoopNode) -> None:
    node.fake_nvml.unload()
    assert node.run(mig(SEVEN)).reason is ConditionReason.WAITING_FOR_DRIVER
    assert 600 <= node.clock.now() < 700
    assert node.condition() == "WaitingForDriver"


# Signals.


@pytest.mark.failure_case(26)
def test_new_policy_after_an_interrupted_change_is_applied(node: LoopNode) -> None:
    node.run(mig(SEVEN))

    def stop(result) -> None:
        if result.step.startswith("create"):
            node.clock.is_stopped = True

    node.before_step = stop
    with suppress(Stopped):
        node.run(mig(TWO))
    node.before_step = lambda _: None
    node.clock.is_stopped = False
    assert node.labels()[DEPLOY] == "true"
    other = mig((("4g.20gb", 0),), key="mig-00000003")
    assert node.run(other).reason is ConditionReason.READY
    assert node.gpus.stands(0) == {("4g.20gb", 0)}
    assert node.folder.journal() is None


def test_stop_during_the_drain_removes_the_taint(node: LoopNode) -> None:
    node.run(mig(SEVEN))
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")
    start = node.clock.now()
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", True) if time > start + 60 else None
    with pytest.raises(Stopped):
        node.run(mig(TWO))
    assert node.taints() == set()
    assert node.watched[-1].startswith("close")


@pytest.mark.failure_case(16)
def test_killed_at_any_write_to_the_api_server_the_next_run_converges(tmp_path: Path) -> None:
    for number in scale.some(range(40), 7):
        with ApiServer() as api:
            node = LoopNode(tmp_path / str(number), api)
            node.run(whole())
            has_died = node.dies_at(number, mig(SEVEN))
            outcome = node.run(mig(SEVEN))
            assert outcome.reason is ConditionReason.READY, (number, outcome.message)
            assert (node.taints(), node.labels()[DEPLOY], node.condition()) == (set(), "true", "Ready"), number
            assert node.gpus.stands(0) == set(SEVEN)
            if not has_died:
                assert number > 5
                return
    pytest.fail("the run never came to its end")


@pytest.mark.failure_case(97)
def test_driver_mismatch_ends_a_holding_run(node: LoopNode) -> None:
    node.fake_nvml.unload(18)
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.DRIVER_MISMATCH
    assert node.fake_nvml.calls() == []
    node.fake_nvml.reload()
    assert node.run(mig(SEVEN), hold=True).reason is ConditionReason.READY


def test_a_change_that_appears_during_the_drain_is_not_tried_while_attempts_back_off(node: LoopNode) -> None:
    one, extra = ("1g.5gb", 0), ("1g.5gb", 4)
    add_plugin_pod(node)
    node.run(mig((one,)))
    relabelled = mig((one,), key="mig-00000009")
    digest = DesiredPolicy(policy=relabelled, text=text_of(relabelled)).digest
    node.folder.write_journal(
        Journal(
            policy_digest=digest,
            boot_id=node.gpus.boot_id,
            attempts=3,
            driver="580.95.05",
            failed_at_seconds=int(node.clock.now()),
        )
    )

    def come(result: StepResult) -> None:
        if result.step == "taint" and not result.detail.endswith("removed"):
            node.gpus.stand(0, extra)

    node.before_step = come
    node.run(relabelled)
    steps = [result.step for result in node.results]
    assert "taint" in steps
    assert "pause GPU clients" not in steps
    assert node.gpus.stands(0) == {one, extra}
