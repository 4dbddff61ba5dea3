"""What a run does where it cannot go on: the former layout stands again, other GPUs are done, and the reason is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from gpushare_node.clock import Stopped
from gpushare_node.host.folder import FolderError, Journal
from gpushare_node.nvml.driver import Code
from gpushare_node.voice.reasons import Reason
from gpushare_node.voice.results import Status
from tests.node import hardware
from tests.node.gpu_node import A100, H100, IDS, SEVEN, GpuNode, policy

CREATE = "nvmlDeviceCreateGpuInstanceWithPlacement"
SET_MODE = "nvmlDeviceSetMigMode"
MIXED = (("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2))
OTHER = (("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2))
"""From MIXED to OTHER, 2g goes, 1g and 3g stay, two 1g come."""


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_SILICON", "")  # so that what loading the GPUs sets is undone


@pytest.fixture
def node(tmp_path: Path) -> GpuNode:
    return GpuNode(tmp_path)


def test_08_tenants_in_the_way_block_their_gpu_and_no_other(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, A100, A100)
    gi = node.stand(0, *MIXED)
    node.silicon.put(0, 4_000_001, 100, gi=gi[0])
    node.stand(1, *MIXED)
    asleep = node.silicon.mig_uuid(1, node.gi_at(1, 0))
    change = node.run(policy(OTHER, OTHER, OTHER), {asleep})
    assert change.reason is Reason.GPU_BUSY
    assert "GPU 0: in use by processes 4000001; GPU 1: in use by a pod to which kubelet gave it" in change.message
    assert [node.stands(gpu) for gpu in range(3)] == [set(MIXED), set(MIXED), set(OTHER)]
    assert node.look(policy(OTHER, OTHER, OTHER), {asleep}).blocked == {node.silicon.uuid(0), node.silicon.uuid(1)}


def test_08_a_whole_gpu_that_kubelet_gave_away_takes_no_mode_change(node: GpuNode) -> None:
    assert node.run(policy(SEVEN), {node.silicon.uuid(0)}).reason is Reason.GPU_BUSY
    assert node.silicon.calls() == []


def test_a_gpu_that_is_taken_into_use_after_the_plan_was_made_is_left_alone(node: GpuNode) -> None:
    gi = node.stand(0, *MIXED)
    own = node.hardware()
    sight = own.look(policy(OTHER))
    node.silicon.put(0, 4_000_001, 100, gi=gi[0])
    change = own.change(policy(OTHER), sight, frozenset(), node.results.append)
    assert change.reason is Reason.GPU_BUSY
    assert node.silicon.calls() == []
    assert node.folder.journal() is None


def test_09_clients_that_let_go_in_time_are_waited_for(node: GpuNode) -> None:
    node.silicon.reset_blocked(0, 19, 3)
    assert node.run(policy(SEVEN)).reason is None
    assert node.clock.slept == [2.0, 4.0, 8.0]
    assert node.stands(0) == set(SEVEN)


def test_09_clients_that_stay_end_the_change_and_nothing_waits_for_a_reset(node: GpuNode) -> None:
    node.silicon.reset_blocked(0, 19, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is Reason.CLIENTS_RUNNING
    assert node.clock.slept == [2.0, 4.0, 8.0, 16.0, 30.0]
    assert node.silicon.mode(0) == (False, False), "what was asked for is called off"
    assert node.folder.journal() is None, "waiting for clients is no failed attempt"


def test_09_clients_that_stay_while_mig_goes_off_get_the_former_instances_back(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.reset_blocked(0, 19, -1)
    change = node.run(policy(()))
    assert change.reason is Reason.CLIENTS_RUNNING
    assert "the former layout stands again, under new MIG UUIDs" in change.message
    assert node.silicon.mode(0) == (True, True)
    assert node.stands(0) == set(MIXED)


def test_10_a_reset_that_only_a_reboot_brings_is_said_and_survived(node: GpuNode) -> None:
    node.silicon.reset_blocked(0, 16, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is Reason.RESET_REQUIRED
    assert "there is no nvidia-smi" in change.message
    assert node.silicon.mode(0) == (False, True), "the mode waits"
    journal = node.folder.journal()
    assert journal is not None
    assert journal.pending_modes == {node.silicon.uuid(0): True}
    for _ in range(4):
        assert node.run(policy(SEVEN)).reason is Reason.RESET_REQUIRED, "our own pending mode is not taken for a stranger's"
    node.reboot()
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)
    assert node.folder.journal() is None


def test_10_this_gpu_alone_is_reset_where_the_host_can(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, A100)
    node.silicon.reset_blocked(1, 16, 1)

    def reset(_: str) -> None:
        node.silicon.set_mode(1, True)

    node.reset_answer = reset
    assert node.run(policy(SEVEN, SEVEN)).reason is None
    assert node.resets == ["00000000:0F:00.0"]
    assert [node.stands(gpu) for gpu in range(2)] == [set(SEVEN)] * 2


def test_10_a_reset_that_changes_nothing_ends_in_time(node: GpuNode) -> None:
    node.silicon.reset_blocked(0, 16, -1)
    node.reset_answer = lambda _: None
    change = node.run(policy(SEVEN))
    assert change.reason is Reason.RESET_REQUIRED
    assert "one changed nothing" in change.message
    assert node.clock.time == 60


def test_11_the_mode_that_somebody_else_has_asked_for_stays_theirs(node: GpuNode) -> None:
    node.silicon.set_mode(0, False, True)
    assert node.run(policy(())).reason is Reason.PENDING_FOREIGN_CHANGE
    assert node.silicon.calls() == []


def test_12_no_permission_says_what_the_runtime_needs(node: GpuNode) -> None:
    node.silicon.fail(SET_MODE, Code.NO_PERMISSION)
    change = node.run(policy(SEVEN))
    assert change.reason is Reason.NO_PERMISSION
    assert "privileged" in change.message
    assert "root" in change.message
    assert node.silicon.mode(0) == (False, False)


@pytest.mark.parametrize("after", range(2))
@pytest.mark.parametrize("code", [Code.INSUFFICIENT_RESOURCES, Code.UNKNOWN, Code.INVALID_ARGUMENT])
def test_14_a_creation_that_fails_half_way_brings_the_former_layout_back(node: GpuNode, after: int, code: Code) -> None:
    gi = node.stand(0, *MIXED)
    node.silicon.put(0, 4_000_001, 100, gi=gi[4])
    node.silicon.fail(CREATE, code, times=1, after=after)
    change = node.run(policy(OTHER))
    assert change.reason is Reason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)
    assert node.gi_at(0, 4) == gi[4]
    assert node.silicon.mode(0) == (True, True)
    assert "the former layout stands again, under new MIG UUIDs" in change.message
    assert node.said(Status.FAILED) == [f"GPU 0: create 1g.5gb at {after}:1"]
    journal = node.folder.journal()
    assert journal is not None
    assert (journal.attempts, journal.former) == (1, ())


@pytest.mark.parametrize("card", [A100, H100])
def test_14_where_mig_was_off_it_is_off_again(tmp_path: Path, card: str) -> None:
    node = GpuNode(tmp_path, card)
    name = "1g.5gb" if card == A100 else "1g.10gb"
    node.silicon.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1, after=3)
    change = node.run(policy(tuple((name, start) for start in range(7)), card=card))
    assert change.reason is Reason.ROLLED_BACK
    assert node.silicon.mode(0) == (False, False)
    assert node.silicon.instances(0) == []


def test_15_a_compute_instance_that_fails_leaves_no_orphan(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.fail("nvmlGpuInstanceCreateComputeInstance", Code.INSUFFICIENT_RESOURCES, times=1)
    assert node.run(policy(OTHER)).reason is Reason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)
    assert all(computes == 1 for *_, computes in node.silicon.instances(0))


def test_19_a_way_back_that_fails_too_is_said(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.fail(CREATE, Code.INSUFFICIENT_RESOURCES)
    change = node.run(policy(OTHER))
    assert change.reason is Reason.PARTITION_FAILED
    assert "the way back failed" in change.message
    assert node.said(Status.FAILED) == ["GPU 0: create 1g.5gb at 0:1", "GPU 0: roll back"]
    node.silicon.heal()
    assert node.run(policy(OTHER)).reason is None, "the next run goes on from what stands"
    assert node.stands(0) == set(OTHER)
    assert node.folder.journal() is None


def test_19_the_run_after_a_failed_way_back_still_knows_the_former_layout(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.fail(CREATE, Code.INSUFFICIENT_RESOURCES)
    node.run(policy(OTHER))
    node.silicon.heal()
    node.silicon.fail(CREATE, Code.UNKNOWN, times=1)
    assert node.run(policy(OTHER)).reason is Reason.ROLLED_BACK
    assert node.stands(0) == set(MIXED)


def test_20_a_gpu_that_is_lost_in_the_middle_stops_no_other(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, *[A100] * 8)
    node.silicon.fail(CREATE, Code.GPU_IS_LOST, gpu=3, after=2)
    change = node.run(policy(*[SEVEN] * 8))
    assert change.reason is Reason.GPU_LOST
    assert change.message.startswith("GPU 3: create 1g.5gb at 2:1")
    assert [gpu for gpu in range(8) if node.stands(gpu) == set(SEVEN)] == [0, 1, 2, 4, 5, 6, 7]
    node.silicon.heal()
    node.silicon.lose(3)
    change = node.run(policy(*[SEVEN] * 8))
    assert change.reason is Reason.GPU_LOST
    assert len(node.said(Status.OK)) == 7


def test_21_a_driver_that_comes_late_is_waited_for(node: GpuNode) -> None:
    node.silicon.unload()
    node.clock.at = lambda time: node.silicon.reload() if time >= 30 else None
    said: list[str] = []
    assert node.hardware().wait(600, said.append) is None
    assert node.clock.slept == [1, 2, 4, 8, 16]
    assert said[0] == "nvmlInit: driver not loaded (9)"


@pytest.mark.parametrize(
    ("code", "reason", "waited"),
    [(9, Reason.WAITING_FOR_DRIVER, 600), (18, Reason.DRIVER_MISMATCH, 600), (4, Reason.NO_PERMISSION, 0)],
)
def test_21_22_a_driver_that_never_answers_has_its_reason(node: GpuNode, code: int, reason: Reason, waited: int) -> None:
    node.silicon.unload(code)
    assert node.hardware().wait(600, lambda _: None) is reason
    assert node.clock.time == waited


def test_26_another_policy_half_way_is_brought_to_its_end(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.kill_after(2)
    assert node.run_to_death(policy(SEVEN))
    node.digest = "digest-2"
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


def fail_often(node: GpuNode) -> None:
    """Three attempts in a row, and a driver that goes on refusing."""
    node.stand(0, *MIXED)
    for _ in range(3):
        node.silicon.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1)
        assert node.run(policy(OTHER)).reason is Reason.ROLLED_BACK
    node.silicon.forget_calls()


def test_26_after_three_failures_pauses_come_first_and_they_double(node: GpuNode) -> None:
    fail_often(node)
    change = node.run(policy(OTHER))
    assert change.reason is Reason.PARTITION_FAILED
    assert "3 attempts have failed under this policy and driver; the next begins 5 minutes after the last" in change.message
    assert node.silicon.calls() == []
    assert node.run(policy(MIXED)).reason is None, "what stands is as wanted: nothing is tried"


def test_94_attempts_go_on_without_end_at_growing_pauses(node: GpuNode) -> None:
    fail_often(node)
    begun = []
    while len(begun) < 10:
        node.clock.time += 60
        node.silicon.heal()
        node.silicon.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1)
        if node.run(policy(OTHER)).reason is Reason.ROLLED_BACK:
            begun.append(node.clock.time)
    pauses = [(later - sooner) / 60 for sooner, later in zip([0.0, *begun], begun, strict=False)]
    assert pauses == [5, 10, 20, 40, 80, 160, 320, 360, 360, 360]
    node.clock.time += 6 * 3600
    node.silicon.heal()
    assert node.run(policy(OTHER)).reason is None
    assert node.folder.journal() is None


def test_26_another_policy_begins_anew(node: GpuNode) -> None:
    fail_often(node)
    node.digest = "digest-2"
    assert node.run(policy(OTHER)).reason is None


def test_94_another_driver_begins_anew(node: GpuNode) -> None:
    fail_often(node)
    assert node.run(policy(OTHER)).reason is Reason.PARTITION_FAILED
    journal = node.folder.journal()
    assert journal is not None
    node.folder.write_journal(replace(journal, driver="570.86.15"))
    assert node.run(policy(OTHER)).reason is None


@pytest.mark.parametrize("at", [10**9, 0], ids=["a clock that went back", "long ago"])
def test_94_a_time_that_cannot_be_stops_no_attempt(node: GpuNode, at: int) -> None:
    fail_often(node)
    node.clock.time = 10_000
    journal = node.folder.journal()
    assert journal is not None
    node.folder.write_journal(replace(journal, failed_at_seconds=at, attempts=3))
    assert node.run(policy(OTHER)).reason is None


def test_26_a_boot_begins_anew(node: GpuNode) -> None:
    node.folder.write_journal(Journal(policy_digest=node.digest, boot_id="boot-0", attempts=3))
    assert node.run(policy(SEVEN)).reason is None


def test_28_an_old_driver_that_cannot_be_told_where_fails_cleanly_unless_it_chooses_right(node: GpuNode) -> None:
    node.silicon.set_mode(0, True)
    node.silicon.miss(CREATE)
    node.silicon.load()
    change = node.run(policy((("1g.5gb", 0),)))
    assert change.reason is Reason.ROLLED_BACK
    assert "this driver is too old for it" in change.message
    assert node.silicon.instances(0) == []
    assert node.run(policy((("1g.5gb", 6),))).reason is None
    assert node.stands(0) == {("1g.5gb", 6)}


def test_a_process_that_no_list_shows_keeps_its_instance_and_the_former_layout(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.fail("nvmlComputeInstanceDestroy", Code.IN_USE)
    change = node.run(policy(OTHER))
    assert change.reason is Reason.GPU_BUSY
    assert node.clock.slept == [1.0] * 10
    assert node.stands(0) == set(MIXED)


def test_an_instance_that_is_let_go_of_late_is_waited_for(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.silicon.fail("nvmlGpuInstanceDestroy", Code.IN_USE, times=4)
    assert node.run(policy(OTHER)).reason is None
    assert node.clock.slept == [1.0] * 4


def test_a_driver_that_goes_away_half_way_is_named_and_the_next_run_goes_on(node: GpuNode) -> None:
    node.silicon.fail(CREATE, Code.DRIVER_NOT_LOADED, times=1, after=3)
    assert node.run(policy(SEVEN)).reason is Reason.WAITING_FOR_DRIVER
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


def test_an_instance_of_somebody_else_in_between_fails_the_verification(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    interfere = iter([lambda: node.silicon.add_instance(0, IDS["1g.5gb"], 3)])
    own = node.hardware()

    def on_result(result) -> None:
        if result.step.startswith("create"):
            next(interfere, lambda: None)()

    change = own.change(policy(OTHER), own.look(policy(OTHER)), frozenset(), on_result)
    assert change.reason is Reason.PARTITION_FAILED
    assert "another layout than was made" in change.message
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


def test_25_a_folder_that_cannot_be_written_is_known_before_hardware_is_touched(node: GpuNode) -> None:
    node.folder.path.write_text("a file where the folder should be")
    with pytest.raises(FolderError, match="cannot be written"):
        node.run(policy(SEVEN))
    assert node.silicon.calls() == []
    node.stand(0, *SEVEN)
    assert node.run(policy(SEVEN)).reason is None, "what is as wanted needs no folder"


def test_25_a_journal_that_cannot_be_read_is_as_good_as_none(node: GpuNode) -> None:
    node.run(policy(SEVEN))
    (node.folder.path / "journal.json").write_text('{"version": 1, "content"')
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


@pytest.mark.parametrize("steps", range(9))
def test_a_request_to_end_is_heard_between_two_steps_and_the_next_run_goes_on(node: GpuNode, steps: int) -> None:
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
    assert all(computes == 1 for *_, computes in node.silicon.instances(0))
    node.clock.is_stopped = False
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


def test_a_gpu_of_another_card_is_named_and_the_rest_is_done(tmp_path: Path) -> None:
    node = GpuNode(tmp_path, A100, H100)
    change = node.run(hardware.policy(hardware.wanted(*SEVEN), hardware.wanted(*SEVEN), card=policy(()).card))
    assert change.reason is Reason.CARD_MISMATCH
    assert node.stands(0) == set(SEVEN)
    assert node.silicon.mode(1) == (False, False)
