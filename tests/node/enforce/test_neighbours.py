"""Nobody but a verified process of an offender is ever signalled, through the whole of enforcement and with real processes."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.guard.identity import Process
from gpushare_node.guard.process_list import Mps
from gpushare_node.reporting.reasons import ConditionReason
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import DEAF, NAMED, OBEDIENT, ProcessPool, systemd_path

SERVER_NAME = b"nvidia-cuda-mps-server".hex()
ROW_FAULTS = {
    "44 scrambled": [(1184, 0, 0xFFFFFFFF, 0xFFFFFFFF), (16040, 0, 1184, 0)],
    "45 swapped": [(5 << 30 & 0xFFFFFFFF, 4321, 0xFFFFFFFF, 0xFFFFFFFF)],
    "47 pid 0": [(0, 1 << 30, 0xFFFFFFFF, 0xFFFFFFFF)],
    "47 pid 1": [(1, 1 << 30, 0xFFFFFFFF, 0xFFFFFFFF)],
}


def reason(stage: EnforcementFixture) -> ConditionReason:
    found = stage.enforcer.reason()
    assert found is not None
    return found[0]


@pytest.mark.failure_case(63, 64)
def test_the_offender_goes_and_neighbour_platform_mps_server_and_strangers_live_on(stage: EnforcementFixture) -> None:
    stage.admit(1, "greedy")
    stage.admit(2, "neighbour")
    stage.arrive(3, "critical", namespace="kube-system")
    stage.arrive(4, "operator", namespace="gpu-operator")
    stage.arrive(5, "ours", namespace="gpushare")
    greedy = stage.begin(1, 5000, DEAF)
    others = [stage.begin(2, 4096), *(stage.begin(number, 5000) for number in (3, 4, 5)), stage.begin(None, 6000)]
    server = stage.started.pid(NAMED, SERVER_NAME)
    stage.mirror.show(server, "/system.slice/mps.service")
    stage.fake_nvml.put(0, server, 5000)
    stage.run(30)
    await_end(greedy)
    stage.run(60)
    assert [pid for pid in (*others, server) if not lives(pid)] == []
    assert {event.pod.name for event in stage.told.events if event.pod is not None} == {"greedy"}


@pytest.mark.failure_case(63)
def test_a_tenant_that_calls_itself_mps_server_is_a_tenant(stage: EnforcementFixture) -> None:
    stage.admit(1, "poser")
    pid = stage.started.pid(NAMED, SERVER_NAME)
    stage.mirror.show(pid, systemd_path(pod_uid(1), container_id(1)))
    stage.mirror.fake(pid, "maps", "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/nvidia0\n")
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(44, 45, 47)
@pytest.mark.parametrize("rows", ROW_FAULTS.values(), ids=ROW_FAULTS)
def test_one_impossible_row_saves_everybody_on_the_device(
    stage: EnforcementFixture, rows: list[tuple[int, int, int, int]]
) -> None:
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.fake_nvml.put_raw(0, rows)
    stage.run(90)
    assert lives(pid)
    assert stage.told.events == []
    assert reason(stage) is ConditionReason.PROCESS_LIST_UNRELIABLE
    assert stage.metric("process_rows_rejected_total{")


@pytest.mark.failure_case(46)
def test_unknown_memory_is_reported_and_nobody_is_blamed(stage: EnforcementFixture) -> None:
    pid = stage.admit_and_begin(1, "unknown", None)
    stage.run(30)
    assert lives(pid)
    assert stage.metric("gpu_memory_unknown_containers{")


def test_a_driver_that_scrambles_lists_and_has_no_others_gets_no_kills_and_the_condition_says_so(
    tmp_path: Path, started: ProcessPool
) -> None:
    made = FakeNvml.make(tmp_path, ("a100-sxm4-40gb",) * 2, driver="535.54.03")
    made.miss("nvmlDeviceGetRunningProcessDetailList")
    made.load()
    stage = EnforcementFixture(tmp_path, made, started)
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.run(30)
    assert lives(pid)
    assert reason(stage) is ConditionReason.PROCESS_LIST_UNRELIABLE


@pytest.mark.failure_case(48)
def test_a_gpu_that_hangs_stops_no_other_and_its_offender_lives(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage = EnforcementFixture(tmp_path, two, started, deadline=1.0)
    stage.admit(1, "on-0")
    stage.admit(2, "on-1", 1)
    here, there = stage.begin(1, 5000), stage.begin(2, 5000, gpu=1)
    stage.run(1)
    stage.fake_nvml.delay("nvmlDeviceGetComputeRunningProcesses_v3", 600, gpu=0)
    stage.run(10)
    await_end(there)
    assert lives(here)
    assert reason(stage) is ConditionReason.DRIVER_HUNG


@pytest.mark.failure_case(50)
def test_a_lost_gpu_is_named_and_judged_again_when_it_is_back(stage: EnforcementFixture) -> None:
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.run(2)
    stage.fake_nvml.lose(0)
    stage.run(30)
    assert lives(pid)
    assert reason(stage) is ConditionReason.GPU_LOST
    stage.fake_nvml.find(0)
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(51)
def test_a_driver_without_the_mps_and_graphics_lists_is_watched_by_the_one_it_has(stage: EnforcementFixture) -> None:
    stage.fake_nvml.miss("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(51)
def test_a_driver_without_any_compute_list_kills_nobody(stage: EnforcementFixture) -> None:
    stage.fake_nvml.miss("nvmlDeviceGetComputeRunningProcesses_v3")
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.run(90)
    assert lives(pid)
    assert reason(stage) is ConditionReason.GPU_UNREADABLE


@pytest.mark.failure_case(52)
def test_without_the_hosts_processes_nobody_is_signalled_and_the_condition_says_blind(stage: EnforcementFixture) -> None:
    namespace = stage.mirror.root / "self/ns/pid"
    namespace.unlink()
    namespace.symlink_to("pid:[4026532999]")
    stage.start()
    stage.admit(1, "greedy")
    pid = stage.started.pid(OBEDIENT)
    stage.fake_nvml.put(0, pid, 5000)
    stage.run(90)
    assert lives(pid)
    assert reason(stage) is ConditionReason.ENFORCEMENT_BLIND


@pytest.mark.failure_case(53)
def test_a_tenant_that_names_a_cgroup_after_its_neighbour_is_charged_itself(stage: EnforcementFixture) -> None:
    stage.admit(1, "forger")
    neighbour = stage.admit_and_begin(2, "neighbour", 3000)
    forger = stage.begin(1, 3000)
    inner = f"{systemd_path(pod_uid(1), container_id(1))}{systemd_path(pod_uid(2), container_id(2))}"
    stage.mirror.show(forger, inner)
    stage.run(30)
    assert lives(neighbour)
    lines = stage.metric("container_gpu_memory_used_bytes{")
    assert ['pod="neighbour"' in lines[0], 'pod="forger"' in lines[1], len(lines)] == [True, True, 2]
    assert all(line.endswith(" 3145728000") for line in lines)


@pytest.mark.failure_case(56, 57)
def test_a_container_that_the_api_shows_late_is_judged_from_then_on(stage: EnforcementFixture) -> None:
    stage.admit(1, "late")
    known, stage.list.known = stage.list.known, ()
    pid = stage.begin(1, 5000)
    stage.run(30)
    assert lives(pid)
    stage.list.known = known
    stage.run(6)
    await_end(pid)


@pytest.mark.failure_case(57)
def test_with_a_stale_pod_list_known_containers_are_judged_and_new_ones_are_not(stage: EnforcementFixture) -> None:
    stage.admit(1, "known")
    stage.run(1)
    stage.list.age_seconds = 3600.0
    stage.admit(2, "new")
    known, new = stage.begin(1, 5000), stage.begin(2, 5000)
    stage.run(30)
    await_end(known)
    assert lives(new)


ELSEWHERE = {"namespace": "elsewhere"}
OTHER_ADMISSION = [{"admission": mode} for mode in ("warn", "audit", "none")]


@pytest.mark.failure_case(59)
@pytest.mark.parametrize(("tenancy", "pod", "given"), [
    *((changes, {}, True) for changes in OTHER_ADMISSION),
    ({}, ELSEWHERE, False),
    ({}, {"has_claims": True}, True),
], ids=["admission warns", "admission audits", "no admission", "no tenant", "a pod with claims"])
def test_a_stray_is_told_once_and_left_alone_where_it_may_be_nobodys_fault(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, tenancy: dict[str, Any], pod: dict[str, Any], *, given: bool
) -> None:
    stage = EnforcementFixture(tmp_path, two, started, tenancy=tenancy)
    stage.admit(1, "wanderer", **pod) if given else stage.arrive(1, "wanderer", **pod)
    stage.admit(2, "somebody")
    pid = stage.begin(1, 9000, gpu=1)
    stage.run(30)
    assert lives(pid)
    assert stage.told.reasons("wanderer") == ["GPUNotAllocated"]
    assert stage.metric("gpu_stray_containers{") == [f'gpu_stray_containers{{gpu="{two.uuid(1)}"}} 1']


@pytest.mark.failure_case(59)
@pytest.mark.parametrize(("tenancy", "pod", "given"), [
    ({}, ELSEWHERE, True), ({}, {}, False), ({"scope": "cluster"}, ELSEWHERE, False),
], ids=["holds a share", "in a tenants' namespace", "the whole cluster is fenced"])
def test_a_tenant_on_a_gpu_that_it_was_not_given_has_a_cap_of_nothing_there(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, tenancy: dict[str, Any], pod: dict[str, Any], *, given: bool
) -> None:
    stage = EnforcementFixture(tmp_path, two, started, tenancy=tenancy)
    stage.admit(1, "wanderer", **pod) if given else stage.arrive(1, "wanderer", **pod)
    stage.admit(2, "somebody")
    pid, owner = stage.begin(1, 600, gpu=1), stage.begin(2, 4000)
    stage.run(8)
    await_end(pid)
    assert lives(owner)
    assert stage.told.reasons("wanderer")[:2] == ["GPUNotAllocated", "GPUMemoryOverCap"]


@pytest.mark.failure_case(59)
@pytest.mark.parametrize("fault", ["unreadable", "vanished", "stale pods", "a device that nobody knows"])
def test_nobody_is_a_stray_while_it_is_not_known_who_was_given_what(stage: EnforcementFixture, fault: str) -> None:
    stage.admit(1, "wanderer")
    stage.run(1)
    if fault == "unreadable":
        stage.checkpoint.write_text("{")
    elif fault == "vanished":
        stage.checkpoint.unlink()
    elif fault == "stale pods":
        stage.list.age_seconds = 2.0
    else:
        stage.allocate(1, SHARED, ["nvidia1/gi3"])
    pid = stage.begin(1, 600, gpu=1)
    stage.run(30)
    assert lives(pid)
    assert stage.told.reasons("wanderer") == ["GPUNotAllocated"]


@pytest.mark.failure_case(59)
def test_a_platform_pod_that_holds_a_share_is_no_stray_elsewhere(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    stage = EnforcementFixture(tmp_path, two, started, tenancy={"scope": "cluster"})
    stage.admit(1, "monitor", namespace="gpu-operator")
    pid = stage.begin(1, 600, gpu=1)
    stage.run(30)
    assert lives(pid)


@pytest.mark.failure_case(71)
def test_memory_that_no_process_accounts_for_is_a_metric_and_nobodys_fault(stage: EnforcementFixture) -> None:
    pid = stage.admit_and_begin(1, "quiet", 3000)
    stage.fake_nvml.unattributed(0, 20000)
    stage.run(30)
    assert lives(pid)
    assert stage.metric("gpu_memory_unattributed_bytes{")


@pytest.mark.failure_case(73)
def test_the_series_of_pods_that_are_gone_vanish(stage: EnforcementFixture) -> None:
    pid = stage.admit_and_begin(1, "brief", 3000)
    stage.run(2)
    assert 'pod="brief"' in stage.figures.registry.text()
    stage.started.close()
    stage.fake_nvml.take(0, pid)
    stage.list.known = ()
    stage.run(2)
    assert 'pod="brief"' not in stage.figures.registry.text()


class FakeMps:
    """A control program that answers as it is told."""

    def __init__(self, *, obeys: bool, state: Mps = Mps.REACHABLE, limit_mib: int | None = 4096) -> None:
        self.obeys, self.now, self.limit = obeys, state, limit_mib
        self.asked: list[int] = []

    def state(self) -> Mps:
        return self.now

    def limit_mib(self, _device: int | str) -> int | None:
        return self.limit

    def terminate(self, targets: Iterable[Process]) -> frozenset[Process]:
        chosen = frozenset(targets)
        self.asked += [target.pid for target in chosen]
        return chosen if self.obeys else frozenset()


def mps_stage(folder: Path, two: FakeNvml, started: ProcessPool, mps: FakeMps) -> EnforcementFixture:
    return EnforcementFixture(folder, two, started, mps=mps, mode="mps", profile="mps-01234567")


@pytest.mark.failure_case(62)
def test_an_mps_client_is_asked_then_ended_by_mps_then_killed(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    mps = FakeMps(obeys=True)
    stage = mps_stage(tmp_path, two, started, mps)
    pid = stage.admit_and_begin(1, "client", 5000, DEAF)
    stage.run(10)
    assert (mps.asked, lives(pid)) == ([pid], True)
    stage.run(2)
    await_end(pid)
    assert stage.metric("enforcement_tier{") == []
    assert stage.metric("mps_limit_mismatch{")[0].endswith(" 0")


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("state", [Mps.REACHABLE, Mps.UNREACHABLE, Mps.OFF])
def test_a_client_that_mps_does_not_end_is_never_killed_but_its_pod_evicted(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, state: Mps
) -> None:
    mps = FakeMps(obeys=False, state=state)
    stage = mps_stage(tmp_path, two, started, mps)
    pid = stage.admit_and_begin(1, "client", 5000, DEAF)
    stage.run(60)
    assert lives(pid)
    assert stage.told.evicted[0].name == "client"


def test_an_mps_limit_that_is_not_the_policys_is_a_metric(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage = mps_stage(tmp_path, two, started, FakeMps(obeys=True, limit_mib=None))
    stage.run(12)
    assert [line[-2:] for line in stage.metric("mps_limit_mismatch{")] == [" 1", " 1"]
