"""What a run does to GPUs that can be changed: exactly what is needed, each to exactly what was asked for."""

from itertools import permutations
from pathlib import Path

import pytest

from gpushare_node.contract.policy import Mode
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import Status
from tests.node.gpus.gpu_node import H100, IDS, SEVEN, GpuNode, policy
from tests.node.partition import builders


@pytest.mark.failure_case(1)
def test_card_without_mig_is_not_changed_if_the_policy_needs_no_mig(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, "t4")
    change = node.run(policy((), card="t4"))
    assert (change.reason, change.message) == (None, "")
    assert node.said(Status.OK) == ["GPU 0: layout"]
    assert node.fake_nvml.calls() == []
    assert not node.folder.path.exists()


@pytest.mark.failure_case(2)
def test_mig_policy_on_a_card_without_mig_is_refused(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, "t4")
    change = node.run(builders.policy(builders.desired(("1g.5gb", 0)), card=policy((), card="t4").card))
    assert change.reason is ConditionReason.INVALID_LAYOUT
    assert "GPU 0: the policy requires MIG instances; this GPU does not support MIG" in change.message
    assert node.fake_nvml.calls() == []


def test_empty_a100_gets_seven_instances_at_the_requested_placements(node: GpuNode) -> None:
    change = node.run(policy(SEVEN))
    assert change.reason is None
    assert node.fake_nvml.mode(0) == (True, True)
    assert node.stands(0) == set(SEVEN)
    assert node.said(Status.CHANGED) == [
        "GPU 0: switch MIG on",
        *(f"GPU 0: create 1g.5gb at {start}:1" for start in range(7)),
        "node: device nodes",
    ]
    assert node.folder.journal() is None, "nothing is left to remember"


@pytest.mark.failure_case(3)
def test_the_second_run_changes_nothing(node: GpuNode) -> None:
    node.run(policy(SEVEN))
    node.fake_nvml.forget_calls()
    change = node.run(policy(SEVEN))
    assert change.reason is None
    assert [(result.step, result.status, result.detail) for result in change.results] == [("layout", Status.OK, "7 × 1g.5gb")]
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(4)
def test_right_instances_at_other_placements_are_kept(node: GpuNode) -> None:
    node.stand(0, ("3g.20gb", 4), ("1g.5gb", 2))
    change = node.run(policy((("3g.20gb", 0), ("1g.5gb", 5))))
    assert change.reason is None
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(5)
@pytest.mark.parametrize("order", list(permutations((("1g.5gb", 0), ("1g.5gb", 1), ("2g.10gb", 2), ("3g.20gb", 4)))))
def test_every_instance_order_succeeds_with_explicit_placements(node: GpuNode, order) -> None:
    assert node.run(policy(order)).reason is None
    assert node.stands(0) == set(order)


@pytest.mark.failure_case(7)
def test_reusable_instance_is_kept_with_its_process(node: GpuNode) -> None:
    gi = node.stand(0, ("3g.20gb", 4), ("2g.10gb", 0))
    uuid = node.fake_nvml.mig_uuid(0, gi[4])
    node.fake_nvml.put(0, 4_000_001, 1000, gi=gi[4])
    change = node.run(policy((("3g.20gb", 0), *(("1g.5gb", start) for start in range(4, 7)))))
    assert change.reason is None
    assert node.gi_at(0, 4) == gi[4]
    assert node.fake_nvml.mig_uuid(0, gi[4]) == uuid
    assert node.stands(0) == {("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2)}


@pytest.mark.failure_case(17)
def test_gpu_instance_without_compute_of_another_tool_is_destroyed(node: GpuNode) -> None:
    node.fake_nvml.set_mode(0, True)
    node.fake_nvml.add_instance(0, IDS["1g.5gb"], 3, cis=0)
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


@pytest.mark.failure_case(18)
def test_compute_instances_are_destroyed_before_a_split_instance(node: GpuNode) -> None:
    node.fake_nvml.set_mode(0, True)
    gi = node.fake_nvml.add_instance(0, IDS["3g.20gb"], 0, cis=3)
    assert node.run(policy((("3g.20gb", 0),))).reason is None
    assert [call.partition("(")[0] for call in node.fake_nvml.calls()] == [
        *["nvmlComputeInstanceDestroy"] * 3,
        "nvmlGpuInstanceDestroy",
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
    ]
    assert node.fake_nvml.instances(0)[0][4] == 1, f"instance {gi} was not whole"


@pytest.mark.failure_case(27)
def test_mig_is_switched_off_if_the_policy_has_no_instances(node: GpuNode) -> None:
    node.stand(0, *SEVEN)
    assert node.run(policy(())).reason is None
    assert node.fake_nvml.mode(0) == (False, False)
    assert node.fake_nvml.instances(0) == []
    node.fake_nvml.set_mode(0, True)
    assert node.run(policy(())).reason is None
    assert node.fake_nvml.mode(0) == (False, False)


@pytest.mark.failure_case(13)
@pytest.mark.parametrize("driver", ["535.183.01", "580.95.05"])
def test_handles_and_placements_are_read_again_after_switching_mig_on(tmp_path: Path, driver) -> None:
    node = GpuNode(tmp_path, H100, driver=driver)
    layout = (("3g.40gb", 0), ("1g.10gb", 4), ("1g.10gb+me", 5))
    sight = node.look(policy(layout, card=H100))
    assert sight.plan.gpus[0].is_final == driver.startswith("580")
    assert node.run(policy(layout, card=H100)).reason is None
    assert len(node.fake_nvml.instances(0)) == 3
    node.fake_nvml.forget_calls()
    assert node.run(policy(layout, card=H100)).reason is None
    assert node.fake_nvml.calls() == []


@pytest.mark.failure_case(23)
def test_a30_with_a_wrong_driver_instance_count_is_partitioned(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, "a30", driver="470.82.01")
    four = tuple(("1g.6gb", start) for start in range(4))
    assert node.run(policy(four, card="a30")).reason is None
    assert [start for _, _, start, _, _ in node.fake_nvml.instances(0)] == [0, 1, 2, 3]


@pytest.mark.failure_case(30)
def test_a_host_without_nvidia_smi_is_a_warning(node: GpuNode) -> None:
    node.nodes_answer = "there is no nvidia-smi on the host"
    change = node.run(policy(SEVEN))
    assert change.reason is None
    assert node.said(Status.SKIPPED) == ["node: device nodes"]
    assert change.results[-1].detail == node.nodes_answer


def test_after_a_reboot_the_layout_is_made_again(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, H100)
    layout = (("3g.40gb", 0), ("1g.10gb", 4))
    node.run(policy(layout, card=H100))
    node.reboot()
    assert node.fake_nvml.mode(0) == (False, False)
    assert node.run(policy(layout, card=H100)).reason is None
    assert len(node.fake_nvml.instances(0)) == 2


def test_check_reports_the_changes_without_making_them(node: GpuNode) -> None:
    node.stand(0, ("3g.20gb", 4), ("2g.10gb", 0))
    change = node.run(policy((("3g.20gb", 4), ("1g.5gb", 0))), check=True)
    assert [(result.step, result.status, result.before, result.after) for result in change.results] == [
        ("destroy 2g.10gb at 0:2", Status.CHANGED, ("2g.10gb at 0:2",), ()),
        ("create 1g.5gb at 0:1", Status.CHANGED, (), ("1g.5gb at 0:1",)),
    ]
    assert node.fake_nvml.calls() == []
    assert not node.folder.path.exists()


def test_check_without_driver_placements_reports_the_policys_placements(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, driver="535.183.01")
    change = node.run(policy(SEVEN[:2]), check=True)
    assert [(result.step, result.after) for result in change.results] == [
        ("switch MIG on", ("MIG on",)),
        ("create instances", ("1g.5gb at 0:1", "1g.5gb at 1:1")),
    ]
    assert node.fake_nvml.calls() == []


def test_the_devices_to_register_are_whole_gpus_and_mig_devices(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, *["a100-sxm4-40gb"] * 3)
    gi = node.stand(1, ("3g.20gb", 4), ("1g.5gb", 0))
    node.fake_nvml.add_instance(1, IDS["1g.5gb"], 1, cis=0)
    node.fake_nvml.lose(2)
    own = node.hardware()
    sight = own.look(policy((), (), ()))
    assert own.devices(sight) == {node.fake_nvml.uuid(0), node.fake_nvml.mig_uuid(1, gi[4]), node.fake_nvml.mig_uuid(1, gi[0])}
    own.close()


def test_compute_mode_left_by_mps_is_reset(node: GpuNode) -> None:
    node.fake_nvml.set_compute_mode(0, 3)
    sight = node.look(policy(()))
    assert not sight.is_as_desired
    change = node.run(policy(()))
    assert change.reason is None
    assert node.fake_nvml.compute_mode(0) == 0
    assert node.said(Status.CHANGED) == ["GPU 0: reset the compute mode", "node: device nodes"]
    assert node.look(policy(())).is_as_desired


def test_mps_keeps_its_compute_mode(node: GpuNode) -> None:
    node.fake_nvml.set_compute_mode(0, 3)
    assert node.run(replace(policy(()), mode=Mode.MPS)).reason is None
    assert node.fake_nvml.compute_mode(0) == 3


@pytest.mark.parametrize("mode", [Mode.TIME_SLICING, Mode.MPS])
def test_prohibited_compute_mode_is_reset_in_every_sharing_mode(node: GpuNode, mode: Mode) -> None:
    node.fake_nvml.set_compute_mode(0, 2)
    assert node.run(replace(policy(()), mode=mode)).reason is None
    assert node.fake_nvml.compute_mode(0) == 0


def test_the_compute_mode_of_a_gpu_in_use_is_left_for_later(node: GpuNode) -> None:
    node.fake_nvml.set_compute_mode(0, 3)
    node.fake_nvml.put(0, 4_000_001, 500)
    change = node.run(policy(()))
    assert change.reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.compute_mode(0) == 3
