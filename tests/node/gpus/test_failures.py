"""What a run does where a step fails: the previous layout is restored, other GPUs are done, and the reason is named."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.host.state_dir import StateDirError
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from gpushare_node.gpus import hardware
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.reporting.outcome import Status
from gpushare_node.vendors.driver import Code, Partitionable
from gpushare_node.vendors.nvidia.session import Session
from tests.node.gpus.gpu_node import A100, CREATE, H100, IDS, MIXED, OTHER, SEVEN, GpuNode, policy
from tests.node.partition import builders


@pytest.mark.failure_case(14)
@pytest.mark.parametrize("after", range(2))
@pytest.mark.parametrize("code", [Code.INSUFFICIENT_RESOURCES, Code.UNKNOWN, Code.INVALID_ARGUMENT])
def test_failed_creation_rolls_back_to_the_previous_layout(node: GpuNode, after: int, code: Code) -> None:
    gi = node.stand(0, *MIXED)
    node.fake_nvml.put(0, 4_000_001, 100, gi=gi[4])
    node.fake_nvml.fail(CREATE, code, times=1, after=after)
    change = node.run(policy(OTHER))
    assert change.reason is ConditionReason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)
    assert node.gi_at(0, 4) == gi[4]
    assert node.fake_nvml.mode(0) == (True, True)
    assert "the previous layout is restored, under new MIG UUIDs" in change.message
    assert node.said(Status.FAILED) == [f"GPU 0: create 1g.5gb at {after}:1"]
    journal = node.folder.journal()
    assert journal is not None
    assert (journal.attempts, journal.former) == (1, ())


def test_failure_with_an_unranked_reason_is_reported(node: GpuNode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "_REASONS_WORST_FIRST", ())
    node.stand(0, *MIXED)
    node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1)
    assert node.run(policy(OTHER)).reason is ConditionReason.ROLLED_BACK


@pytest.mark.failure_case(14)
@pytest.mark.parametrize("card", [A100, H100])
def test_rollback_switches_mig_off_if_it_was_off(tmp_path: Path, card: str) -> None:
    node = GpuNode(tmp_path, card)
    name = "1g.5gb" if card == A100 else "1g.10gb"
    node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1, after=3)
    change = node.run(policy(tuple((name, start) for start in range(7)), card=card))
    assert change.reason is ConditionReason.ROLLED_BACK
    assert node.fake_nvml.mode(0) == (False, False)
    assert node.fake_nvml.instances(0) == []


@pytest.mark.failure_case(15)
def test_a_compute_instance_that_fails_leaves_no_orphan(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.fail("nvmlGpuInstanceCreateComputeInstance", Code.INSUFFICIENT_RESOURCES, times=1)
    assert node.run(policy(OTHER)).reason is ConditionReason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)
    assert all(computes == 1 for *_, computes in node.fake_nvml.instances(0))


@pytest.mark.failure_case(19)
def test_failed_rollback_is_reported(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES)
    change = node.run(policy(OTHER))
    assert change.reason is ConditionReason.PARTITION_FAILED
    assert "the rollback failed" in change.message
    assert node.said(Status.FAILED) == ["GPU 0: create 1g.5gb at 0:1", "GPU 0: roll back"]
    node.fake_nvml.heal()
    assert node.run(policy(OTHER)).reason is None, "the next run goes on from what stands"
    assert node.stands(0) == set(OTHER)
    assert node.folder.journal() is None


@pytest.mark.failure_case(19)
def test_run_after_a_failed_rollback_still_knows_the_previous_layout(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES)
    node.run(policy(OTHER))
    node.fake_nvml.heal()
    node.fake_nvml.fail(CREATE, Code.UNKNOWN, times=1)
    assert node.run(policy(OTHER)).reason is ConditionReason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)


@pytest.mark.failure_case(20)
def test_gpu_lost_during_a_change_does_not_stop_the_others(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, *[A100] * 8)
    node.fake_nvml.fail(CREATE, Code.GPU_IS_LOST, gpu=3, after=2)
    change = node.run(policy(*[SEVEN] * 8))
    assert change.reason is ConditionReason.GPU_LOST
    assert change.message.startswith("GPU 3: create 1g.5gb at 2:1")
    assert [gpu for gpu in range(8) if node.stands(gpu) == set(SEVEN)] == [0, 1, 2, 4, 5, 6, 7]
    node.fake_nvml.heal()
    node.fake_nvml.lose(3)
    change = node.run(policy(*[SEVEN] * 8))
    assert change.reason is ConditionReason.GPU_LOST
    assert len(node.said(Status.OK)) == 7


@pytest.mark.failure_case(28)
def test_driver_without_placement_support_rolls_back_unless_it_places_right(node: GpuNode) -> None:
    node.fake_nvml.set_mode(0, True)
    node.fake_nvml.miss(CREATE)
    node.fake_nvml.load()
    change = node.run(policy((("1g.5gb", 0),)))
    assert change.reason is ConditionReason.ROLLED_BACK
    assert "this driver does not support it" in change.message
    assert node.fake_nvml.instances(0) == []
    assert node.run(policy((("1g.5gb", 6),))).reason is None
    assert node.stands(0) == {("1g.5gb", 6)}


def test_instance_held_by_a_hidden_process_keeps_the_previous_layout(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.fail("nvmlComputeInstanceDestroy", Code.IN_USE)
    change = node.run(policy(OTHER))
    assert change.reason is ConditionReason.GPU_BUSY
    assert node.clock.slept == [1.0] * 10
    assert node.stands(0) == set(MIXED)


def test_instance_that_is_briefly_in_use_is_waited_for(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.fail("nvmlGpuInstanceDestroy", Code.IN_USE, times=4)
    assert node.run(policy(OTHER)).reason is None
    assert node.clock.slept == [1.0] * 4


def test_driver_unloaded_during_a_change_is_reported_and_the_next_run_resumes(node: GpuNode) -> None:
    node.fake_nvml.fail(CREATE, Code.DRIVER_NOT_LOADED, times=1, after=3)
    assert node.run(policy(SEVEN)).reason is ConditionReason.WAITING_FOR_DRIVER
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


def test_an_instance_of_another_program_in_between_fails_the_verification(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    interfere = iter([lambda: node.fake_nvml.add_instance(0, IDS["1g.5gb"], 3)])
    own = node.hardware()

    def on_result(result) -> None:
        if result.step.startswith("create"):
            next(interfere, lambda: None)()

    change = own.change(policy(OTHER), own.look(policy(OTHER)), frozenset(), on_result)
    assert change.reason is ConditionReason.PARTITION_FAILED
    assert "a layout that was not created" in change.message
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


@pytest.mark.failure_case(25)
def test_unwritable_state_dir_is_detected_before_hardware_changes(node: GpuNode) -> None:
    node.folder.path.write_text("a file where the folder should be")
    with pytest.raises(StateDirError, match="cannot be written"):
        node.run(policy(SEVEN))
    assert node.fake_nvml.calls() == []
    node.stand(0, *SEVEN)
    assert node.run(policy(SEVEN)).reason is None, "what is as desired needs no folder"


@pytest.mark.failure_case(25)
def test_unreadable_journal_is_treated_as_absent(node: GpuNode) -> None:
    node.run(policy(SEVEN))
    (node.folder.path / "journal.json").write_text('{"version": 1, "content"')
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


@pytest.mark.parametrize("steps", range(9))
def test_stop_request_is_honoured_between_steps_and_the_next_run_resumes(node: GpuNode, steps: int) -> None:
    own = node.hardware()
    seen = []

    def on_result(result) -> None:
        seen.append(result)
        node.clock.is_stopped = len(seen) >= steps

    node.clock.is_stopped = steps == 0
    if steps < 8:
        with pytest.raises(Stopped):
            own.change(policy(SEVEN), own.look(policy(SEVEN)), frozenset(), on_result)
    else:
        assert own.change(policy(SEVEN), own.look(policy(SEVEN)), frozenset(), on_result).reason is None
    own.close()
    assert len(node.stands(0)) == max(0, min(steps, 8) - 1)
    assert all(computes == 1 for *_, computes in node.fake_nvml.instances(0))
    node.clock.is_stopped = False
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


def test_gpu_of_another_card_is_reported_and_the_others_are_partitioned(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, H100)
    change = node.run(builders.policy(builders.desired(*SEVEN), builders.desired(*SEVEN), card=policy(()).card))
    assert change.reason is ConditionReason.CARD_MISMATCH
    assert node.stands(0) == set(SEVEN)
    assert node.fake_nvml.mode(1) == (False, False)


class WholeGpus(Session):
    """A driver whose GPUs cannot be divided."""

    def __getattribute__(self, name: str) -> Any:
        if name in vars(Partitionable) and not name.startswith("_"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_driver_without_partitioning_fails_the_layout_and_changes_nothing(node: GpuNode) -> None:
    own = Hardware(open_driver=WholeGpus.open, folder=node.folder, clock=node.clock, policy_digest=node.digest)
    change = own.change(policy(SEVEN), own.look(policy(SEVEN)), frozenset(), node.results.append)
    assert change.reason is ConditionReason.ROLLED_BACK
    assert "set_mig: not supported (3)" in change.message
    assert node.fake_nvml.calls() == []
    assert own.change(policy(()), own.look(policy(())), frozenset(), node.results.append).reason is None
    own.close()
