"""From the driver's list to the signal, with real processes: who goes over its cap is ended, and nobody else."""

import json
import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.processes import ProcessIdentity, Signal, SignalResult
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import MAPPED, EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import CHANGING, GRACEFUL, IGNORING_SIGTERM, NAMED, ProcessPool, said, systemd_path, tell
from tests.support.waiting import wait_for


@pytest.mark.failure_case(36)
def test_container_over_its_cap_is_warned_then_sent_sigterm_with_events(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "greedy", 5000, GRACEFUL)
    enforcement.run(3)
    assert enforcement.told.reasons("greedy") == ["GPUMemoryOverCap"]
    for part in ("5000 MiB of GPU-", "its cap of 4096 MiB", "for 3 s", "SIGTERM", "in 2 s"):
        assert part in enforcement.told.events[0].message
    enforcement.run(2)
    await_end(pid)
    enforcement.run(2)
    assert enforcement.told.reasons("greedy") == ["GPUMemoryOverCap", "GPUProcessKilled"]
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGTERM",outcome="exited_term",reason="over-cap"} 1']


@pytest.mark.failure_case(37)
def test_process_that_ignores_sigterm_is_killed_after_the_grace(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "deaf", 5000, IGNORING_SIGTERM)
    enforcement.run(9)
    assert lives(pid)
    enforcement.run(1)
    await_end(pid)
    enforcement.run(1)
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGKILL",outcome="exited_kill",reason="over-cap"} 1']
    assert enforcement.told.reasons("deaf") == ["GPUMemoryOverCap", "GPUProcessKilled", "GPUProcessKilled"]


@pytest.mark.failure_case(38)
def test_process_that_frees_memory_after_sigterm_is_not_killed(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "sorry", 5000, IGNORING_SIGTERM)
    enforcement.run(5)
    enforcement.fake_nvml.put(0, pid, 1000)
    enforcement.run(20)
    assert lives(pid)
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGTERM",outcome="spared",reason="over-cap"} 1']


@pytest.mark.failure_case(34)
def test_larger_of_two_processes_over_the_cap_is_killed(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "pair")
    small, large = enforcement.begin(1, 2000), enforcement.begin(1, 3000)
    enforcement.run(6)
    await_end(large)
    enforcement.run(5)
    assert lives(small)


@pytest.mark.failure_case(35)
def test_container_that_restarts_its_gpu_process_is_killed_as_a_whole(enforcement: EnforcementFixture) -> None:
    parent = enforcement.admit_and_begin(1, "storm", 0, IGNORING_SIGTERM)
    enforcement.fake_nvml.take(0, parent)
    first = enforcement.begin(1, 5000)
    enforcement.run(5)
    await_end(first)
    enforcement.run(2)
    assert lives(parent)
    second = enforcement.begin(1, 5000)
    enforcement.run(4)
    await_end(second)
    assert lives(parent)
    enforcement.run(6)
    await_end(parent)


def test_container_with_debt_is_checked_every_cycle_and_keeps_its_own_debt(enforcement: EnforcementFixture) -> None:
    """Others are looked at in one cycle of sixty: a pid that passes to somebody else must not take its debt along."""
    for number, name in ((1, "over"), (2, "calm"), (3, "heir")):
        enforcement.admit(number, name)
    pid, calm = enforcement.begin(1, 5000), enforcement.begin(2, 100)
    enforcement.run(1)
    looked: list[int] = []
    look = enforcement.processes.look

    def note(pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        looked.extend(pids)
        return look(pids)

    enforcement.processes.look = note  # type: ignore[method-assign]
    enforcement.run(2)
    assert looked.count(pid) == 2
    assert looked.count(calm) <= 1
    enforcement.fake_proc.show(pid, systemd_path(pod_uid(3), container_id(3)))
    enforcement.run(2)
    assert lives(pid)
    assert enforcement.metric("kills_total{") == []


@pytest.mark.failure_case(39)
def test_process_now_in_another_container_is_not_signalled(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "gone")
    enforcement.admit(2, "heir")
    pid = enforcement.begin(1, 5000)
    enforcement.run(4)
    look = enforcement.processes.look

    def stale(pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        """/proc as it was when the list was read; between that and the signal the pid passes to another container."""
        seen = look(pids)
        enforcement.fake_proc.show(pid, systemd_path(pod_uid(2), container_id(2)))
        return seen

    enforcement.processes.look = stale  # type: ignore[method-assign]
    enforcement.run(1)
    assert lives(pid)
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGTERM",outcome="reused",reason="over-cap"} 1']


@pytest.mark.failure_case(40)
def test_exec_does_not_shed_an_offence(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "other")
    process = enforcement.started.start(CHANGING)
    assert said(process) == "ready"
    enforcement.fake_proc.show(process.pid, systemd_path(pod_uid(1), container_id(1)))
    enforcement.fake_proc.fake(process.pid, "maps", MAPPED)
    enforcement.fake_nvml.put(0, process.pid, 5000)
    enforcement.run(5)
    tell(process, "now")
    wait_for(lambda: Path(f"/proc/{process.pid}/comm").read_text() == "sleep\n")
    enforcement.run(1)
    await_end(process.pid)


@pytest.mark.failure_case(41)
def test_unreaped_target_counts_as_exited(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "zombie", 5000)
    enforcement.run(5)
    await_end(pid)
    assert Path(f"/proc/{pid}").exists()
    enforcement.run(2)
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGTERM",outcome="exited_term",reason="over-cap"} 1']
    assert not enforcement.enforcer.has_targets


@pytest.mark.failure_case(42)
def test_target_that_survives_sigkill_is_reported_once_and_delays_no_other(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def note(_: ProcessIdentity, signal: Signal) -> SignalResult:
        sent.append(signal.value)
        return SignalResult.SENT

    monkeypatch.setattr(enforcement.processes, "send", note)
    enforcement.admit(1, "stuck")
    enforcement.admit(2, "next")
    enforcement.begin(1, 6000)
    enforcement.begin(2, 5000)
    enforcement.run(7)
    assert enforcement.told.reasons("next").count("GPUProcessKilled") == 1
    enforcement.run(92)
    assert sent.count("SIGKILL") >= 4
    assert enforcement.metric("stuck_processes ") == ["stuck_processes 2"]
    assert enforcement.told.reasons("stuck").count("GPUProcessKilled") == 2
    assert enforcement.told.reasons("stuck").count("GPUProcessKillFailed") == 1
    assert any("D state" in event.message for event in enforcement.told.events)


@pytest.mark.failure_case(43)
def test_a_refused_signal_is_reported_and_not_tried_again_for_a_while(
    enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(seen: ProcessIdentity, signal: Signal) -> SignalResult:
        asked.append((seen.pid, signal))
        return SignalResult.REFUSED

    monkeypatch.setattr(enforcement.processes, "send", refuse)
    pid = enforcement.admit_and_begin(1, "untouchable", 5000)
    enforcement.run(30)
    assert [one for one, _ in asked] == [pid]
    assert enforcement.told.reasons("untouchable")[:2] == ["GPUMemoryOverCap", "GPUProcessKillFailed"]
    assert "capability KILL" in enforcement.told.events[1].message
    assert enforcement.metric('kills_suppressed_total{reason="no-permission"}')


@pytest.mark.failure_case(47)
def test_process_without_a_mapped_gpu_is_not_signalled(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "innocent", 5000)
    enforcement.fake_proc.fake(pid, "maps", "7f0000000000-7f0000001000 r--p 00000000 08:01 1 /usr/lib/libc.so.6\n")
    enforcement.run(110)
    assert lives(pid)
    reason = enforcement.enforcer.reason()
    assert reason is not None
    assert reason[0] is ConditionReason.CAP_EXCEEDED
    assert "team/innocent, container main" in reason[1]


@pytest.mark.failure_case(66)
@pytest.mark.parametrize("action", ["kill", "evict"])
def test_dry_run_reports_actions_without_performing_them(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, action: str
) -> None:
    enforcement = EnforcementFixture(
        tmp_path, two_gpus, process_pool, settings=Settings(dry_run=True), enforcement={"action": action}
    )
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.evicted == []
    assert len(enforcement.told.events) >= 2
    assert all(event.message.startswith("Dry run: ") for event in enforcement.told.events)


@pytest.mark.failure_case(68)
def test_restart_of_the_runtime_costs_one_grace_at_most(enforcement: EnforcementFixture) -> None:
    """It begins with no debts, and ends the container in the time of a new offence: 5 s to SIGTERM, and 5 s more."""
    pid = enforcement.admit_and_begin(1, "deaf", 5000, IGNORING_SIGTERM)
    enforcement.run(6)
    enforcement.enforcer.close()
    enforcement.start()
    enforcement.run(10)
    assert lives(pid)
    enforcement.run(1)
    await_end(pid)


@pytest.mark.failure_case(74)
def test_a_name_with_line_feeds_and_quotes_stays_inside_its_line_of_the_log(
    enforcement: EnforcementFixture, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpushare.enforce")
    enforcement.admit(1, "forger")
    pid = enforcement.started.pid(NAMED, b'\n{"a":"b\\\x1b[2J'.hex())
    enforcement.fake_proc.show(pid, systemd_path(pod_uid(1), container_id(1)))
    enforcement.fake_proc.fake(pid, "maps", MAPPED)
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(6)
    lines = [record.getMessage() for record in caplog.records if record.name == "gpushare.enforce"]
    assert lines
    for text in lines:
        assert "\n" not in text
        assert "\x1b" not in text
        assert json.loads(text)["event"] in ("kill", "GPUMemoryOverCap", "GPUProcessKilled")


def test_kill_log_record_has_all_fields(enforcement: EnforcementFixture, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "gpushare.enforce")
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(5)
    await_end(pid)
    enforcement.run(2)
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.name == "gpushare.enforce"]
    records = [line for line in lines if line["event"] == "kill"]
    assert [record["outcome"] for record in records] == ["sent", "exited_term"]
    expected = {
        "node": "node-1",
        "policy": "d1",
        "gpu": enforcement.fake_nvml.uuid(0),
        "gpu_instance": None,
        "namespace": "team",
        "pod": "greedy",
        "pod_uid": pod_uid(1),
        "container": "main",
        "container_id": container_id(1),
        "pid": pid,
        "uid": os.getuid(),
        "used_bytes": 5000 << 20,
        "container_used_bytes": 5000 << 20,
        "cap_bytes": 4096 << 20,
        "samples": 6,
        "tolerance_bytes": 0,
        "signal": "SIGTERM",
        "dry_run": False,
    }
    assert expected.items() <= records[1].items()
    assert records[1]["since_signal_seconds"] == 1.0
    assert records[1]["namespace_pids"][-1:] == [pid]
    assert records[1]["comm"].startswith("python")
