"""When a run begins and begins again: a driver that is not there yet, attempts that failed, and what begins them anew."""

import pytest

from gpushare_node.adapters.host.state_dir import Journal
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.vendors.driver import Code
from tests.node.gpus.gpu_node import CREATE, MIXED, OTHER, SEVEN, GpuNode, policy


@pytest.mark.failure_case(21)
def test_a_driver_that_comes_late_is_waited_for(node: GpuNode) -> None:
    node.fake_nvml.unload()
    node.clock.at = lambda time: node.fake_nvml.reload() if time >= 30 else None
    said: list[str] = []
    assert node.hardware().wait(600, said.append) is None
    assert node.clock.slept == [1, 2, 4, 8, 16]
    assert said[0] == "nvmlInit: driver not loaded (9)"


@pytest.mark.failure_case(21, 22)
@pytest.mark.parametrize(
    ("code", "reason", "waited"),
    [
        (9, ConditionReason.WAITING_FOR_DRIVER, 600),
        (18, ConditionReason.DRIVER_MISMATCH, 600),
        (4, ConditionReason.NO_PERMISSION, 0),
    ],
)
def test_driver_that_never_answers_gives_its_reason(node: GpuNode, code: int, reason: ConditionReason, waited: int) -> None:
    node.fake_nvml.unload(code)
    assert node.hardware().wait(600, lambda _: None) is reason
    assert node.clock.time == waited


@pytest.mark.failure_case(26)
def test_new_policy_after_an_interrupted_change_is_applied(node: GpuNode) -> None:
    node.stand(0, *MIXED)
    node.fake_nvml.kill_after(2)
    assert node.run_to_death(policy(SEVEN))
    node.digest = "digest-2"
    assert node.run(policy(OTHER)).reason is None
    assert node.stands(0) == set(OTHER)


def fail_often(node: GpuNode) -> None:
    """Three attempts in a row, and a driver that goes on refusing."""
    node.stand(0, *MIXED)
    for _ in range(3):
        node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1)
        assert node.run(policy(OTHER)).reason is ConditionReason.ROLLED_BACK
    node.fake_nvml.forget_calls()


@pytest.mark.failure_case(26)
def test_fourth_attempt_waits_for_the_backoff(node: GpuNode) -> None:
    fail_often(node)
    change = node.run(policy(OTHER))
    assert change.reason is ConditionReason.PARTITION_FAILED
    assert "3 attempts have failed under this policy and driver; the next starts 5 minutes after the last" in change.message
    assert node.fake_nvml.calls() == []
    assert node.run(policy(MIXED)).reason is None, "what stands is as desired: nothing is tried"


@pytest.mark.failure_case(94)
def test_attempts_continue_with_growing_backoff(node: GpuNode) -> None:
    fail_often(node)
    for minutes in (5, 10, 20, 40, 80, 160, 320, 360, 360, 360):
        for seconds, is_due in ((minutes * 60 - 1, False), (1, True)):
            node.clock.time += seconds
            node.fake_nvml.heal()
            node.fake_nvml.fail(CREATE, Code.INSUFFICIENT_RESOURCES, times=1)
            is_attempt = node.run(policy(OTHER)).reason is ConditionReason.ROLLED_BACK
            assert is_attempt == is_due, f"{seconds} s of the {minutes} min"
    node.clock.time += 6 * 3600
    node.fake_nvml.heal()
    assert node.run(policy(OTHER)).reason is None
    assert node.folder.journal() is None


@pytest.mark.failure_case(26)
def test_new_policy_resets_the_failed_attempts(node: GpuNode) -> None:
    fail_often(node)
    node.digest = "digest-2"
    assert node.run(policy(OTHER)).reason is None


@pytest.mark.failure_case(94)
def test_new_driver_version_resets_the_failed_attempts(node: GpuNode) -> None:
    fail_often(node)
    assert node.run(policy(OTHER)).reason is ConditionReason.PARTITION_FAILED
    journal = node.folder.journal()
    assert journal is not None
    node.folder.write_journal(replace(journal, driver="570.86.15"))
    assert node.run(policy(OTHER)).reason is None


@pytest.mark.failure_case(94)
@pytest.mark.parametrize("at", [10**9, 0], ids=["a clock that went back", "long ago"])
def test_invalid_failure_timestamp_is_ignored(node: GpuNode, at: int) -> None:
    fail_often(node)
    node.clock.time = 10_000
    journal = node.folder.journal()
    assert journal is not None
    node.folder.write_journal(replace(journal, failed_at_seconds=at, attempts=3))
    assert node.run(policy(OTHER)).reason is None


@pytest.mark.failure_case(26)
def test_reboot_resets_the_failed_attempts(node: GpuNode) -> None:
    node.folder.write_journal(Journal(policy_digest=node.digest, boot_id="boot-0", attempts=3))
    assert node.run(policy(SEVEN)).reason is None
