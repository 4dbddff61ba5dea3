"""What a run does where somebody else must do something first: tenants, clients, a reset, rights; nothing is half done."""

from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.vendors.driver import Code
from tests.node.gpus.gpu_node import A100, MIXED, OTHER, SEVEN, GpuNode, policy

SET_MODE = "nvmlDeviceSetMigMode"


@pytest.mark.failure_case(8)
def test_tenants_block_only_their_own_gpu(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, A100, A100)
    gi = node.stand(0, *MIXED)
    node.fake_nvml.put(0, 4_000_001, 100, gi=gi[0])
    node.stand(1, *MIXED)
    asleep = node.fake_nvml.mig_uuid(1, node.gi_at(1, 0))
    change = node.run(policy(OTHER, OTHER, OTHER), {asleep})
    assert change.reason is ConditionReason.GPU_BUSY
    assert "GPU 0: in use by process 4000001; GPU 1: in use by a pod to which kubelet allocated it" in change.message
    assert [node.stands(gpu) for gpu in range(3)] == [set(MIXED), set(MIXED), set(OTHER)]
    assert node.look(policy(OTHER, OTHER, OTHER), {asleep}).blocked == {node.fake_nvml.uuid(0), node.fake_nvml.uuid(1)}


@pytest.mark.failure_case(8)
def test_allocated_whole_gpu_gets_no_mode_change(node: GpuNode) -> None:
    assert node.run(policy(SEVEN), {node.fake_nvml.uuid(0)}).reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.calls() == []


def test_gpu_used_after_planning_is_not_changed(node: GpuNode) -> None:
    gi = node.stand(0, *MIXED)
    own = node.hardware()
    sight = own.look(policy(OTHER))
    node.fake_nvml.put(0, 4_000_001, 100, gi=gi[0])
    change = own.change(policy(OTHER), sight, frozenset(), node.results.append)
    assert change.reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.calls() == []
    assert node.folder.journal() is None


@pytest.mark.failure_case(9)
def test_clients_that_close_the_gpu_in_time_are_waited_for(node: GpuNode) -> None:
    node.fake_nvml.reset_blocked(0, 19, 3)
    assert node.run(policy(SEVEN)).reason is None
    assert node.clock.slept == [2.0, 4.0, 8.0]
    assert node.stands(0) == set(SEVEN)


@pytest.mark.failure_case(9)
def test_remaining_clients_abort_the_change_without_a_pending_mode(node: GpuNode) -> None:
    node.fake_nvml.reset_blocked(0, 19, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.CLIENTS_RUNNING
    assert node.clock.slept == [2.0, 4.0, 8.0, 16.0, 30.0]
    assert node.fake_nvml.mode(0) == (False, False), "what was asked for is called off"
    assert node.folder.journal() is None, "waiting for clients is no failed attempt"


@pytest.mark.failure_case(9)
def test_remaining_clients_while_disabling_mig_restore_the_instances(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.reset_blocked(0, 19, -1)
    change = node.run(policy(()))
    assert change.reason is ConditionReason.CLIENTS_RUNNING
    assert "the previous layout is restored, under new MIG UUIDs" in change.message
    assert node.fake_nvml.mode(0) == (True, True)
    assert node.stands(0) == set(MIXED)


@pytest.mark.failure_case(10)
def test_required_reboot_is_reported_and_the_pending_mode_remembered(node: GpuNode) -> None:
    node.fake_nvml.reset_blocked(0, 16, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.RESET_REQUIRED
    assert "there is no nvidia-smi" in change.message
    assert node.fake_nvml.mode(0) == (False, True), "the mode waits"
    journal = node.folder.journal()
    assert journal is not None
    assert journal.pending_modes == {node.fake_nvml.uuid(0): True}
    for _ in range(4):
        assert node.run(policy(SEVEN)).reason is ConditionReason.RESET_REQUIRED, (
            "our own pending mode is not taken for a stranger's"
        )
    node.reboot()
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)
    assert node.folder.journal() is None


@pytest.mark.failure_case(10)
def test_only_the_affected_gpu_is_reset_if_the_host_supports_it(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, A100)
    node.fake_nvml.reset_blocked(1, 16, 1)

    def reset(_: str) -> None:
        node.fake_nvml.set_mode(1, True)

    node.reset_answer = reset
    assert node.run(policy(SEVEN, SEVEN)).reason is None
    assert node.resets == ["00000000:0F:00.0"]
    assert [node.stands(gpu) for gpu in range(2)] == [set(SEVEN)] * 2


@pytest.mark.failure_case(10)
def test_ineffective_reset_ends_in_time(node: GpuNode) -> None:
    node.fake_nvml.reset_blocked(0, 16, -1)
    node.reset_answer = lambda _: None
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.RESET_REQUIRED
    assert "a reset did not switch it" in change.message
    assert node.clock.time == 60


@pytest.mark.failure_case(11)
def test_pending_mode_of_another_program_is_not_changed(node: GpuNode) -> None:
    node.fake_nvml.set_mode(0, False, True)
    assert node.run(policy(())).reason is ConditionReason.PENDING_FOREIGN_CHANGE
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(12)
def test_missing_permission_error_says_what_the_runtime_needs(node: GpuNode) -> None:
    node.fake_nvml.fail(SET_MODE, Code.NO_PERMISSION)
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.NO_PERMISSION
    assert "privileged" in change.message
    assert "root" in change.message
    assert node.fake_nvml.mode(0) == (False, False)
