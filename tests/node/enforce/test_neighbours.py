"""Nobody but a verified process of an offender is ever signalled, through the whole of enforcement and with real processes."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.guard.process_list import Mps
from tests.node.enforce.enforcement import SHARED, EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM, NAMED, SLEEPING, ProcessPool, systemd_path

SERVER_NAME = b"nvidia-cuda-mps-server".hex()
ROW_FAULTS = {
    "44 scrambled": [(1184, 0, 0xFFFFFFFF, 0xFFFFFFFF), (16040, 0, 1184, 0)],
    "45 swapped": [(5 << 30 & 0xFFFFFFFF, 4321, 0xFFFFFFFF, 0xFFFFFFFF)],
    "47 pid 0": [(0, 1 << 30, 0xFFFFFFFF, 0xFFFFFFFF)],
    "47 pid 1": [(1, 1 << 30, 0xFFFFFFFF, 0xFFFFFFFF)],
}


def reason(enforcement: EnforcementFixture) -> ConditionReason:
    found = enforcement.enforcer.reason()
    assert found is not None
    return found[0]


@pytest.mark.failure_case(63, 64)
def test_only_the_offender_is_killed(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "greedy")
    enforcement.admit(2, "neighbour")
    enforcement.arrive(3, "critical", namespace="kube-system")
    enforcement.arrive(4, "operator", namespace="gpu-operator")
    enforcement.arrive(5, "ours", namespace="gpushare")
    greedy = enforcement.begin(1, 5000, IGNORING_SIGTERM)
    others = [
        enforcement.begin(2, 4096),
        *(enforcement.begin(number, 5000) for number in (3, 4, 5)),
        enforcement.begin(None, 6000),
    ]
    server = enforcement.started.pid(NAMED, SERVER_NAME)
    enforcement.fake_proc.show(server, "/system.slice/mps.service")
    enforcement.fake_nvml.put(0, server, 5000)
    enforcement.run(30)
    await_end(greedy)
    enforcement.run(60)
    assert [pid for pid in (*others, server) if not lives(pid)] == []
    assert {event.pod.name for event in enforcement.told.events if event.pod is not None} == {"greedy"}


@pytest.mark.failure_case(63)
def test_a_tenant_that_calls_itself_mps_server_is_a_tenant(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "poser")
    pid = enforcement.started.pid(NAMED, SERVER_NAME)
    enforcement.fake_proc.show(pid, systemd_path(pod_uid(1), container_id(1)))
    enforcement.fake_proc.fake(pid, "maps", "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/nvidia0\n")
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(44, 45, 47)
@pytest.mark.parametrize("rows", ROW_FAULTS.values(), ids=ROW_FAULTS)
def test_implausible_row_prevents_kills_on_the_device(
    enforcement: EnforcementFixture, rows: list[tuple[int, int, int, int]]
) -> None:
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.fake_nvml.put_raw(0, rows)
    enforcement.run(90)
    assert lives(pid)
    assert enforcement.told.events == []
    assert reason(enforcement) is ConditionReason.PROCESS_LIST_UNRELIABLE
    assert enforcement.metric("process_rows_rejected_total{")


@pytest.mark.failure_case(46)
def test_unknown_memory_is_reported_and_no_process_is_killed(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "unknown", None)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.metric("gpu_memory_unknown_containers{")


def test_unreliable_process_lists_prevent_kills_and_are_reported(tmp_path: Path, process_pool: ProcessPool) -> None:
    made = FakeNvml.make(tmp_path, ("a100-sxm4-40gb",) * 2, driver="535.54.03")
    made.miss("nvmlDeviceGetRunningProcessDetailList")
    made.load()
    enforcement = EnforcementFixture(tmp_path, made, process_pool)
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(30)
    assert lives(pid)
    assert reason(enforcement) is ConditionReason.PROCESS_LIST_UNRELIABLE


@pytest.mark.failure_case(48)
def test_hanging_gpu_has_no_kills_while_others_are_enforced(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, deadline=1.0)
    enforcement.admit(1, "on-0")
    enforcement.admit(2, "on-1", 1)
    here, there = enforcement.begin(1, 5000), enforcement.begin(2, 5000, gpu=1)
    enforcement.run(1)
    enforcement.fake_nvml.delay("nvmlDeviceGetComputeRunningProcesses_v3", 600, gpu=0)
    enforcement.run(10)
    await_end(there)
    assert lives(here)
    assert reason(enforcement) is ConditionReason.DRIVER_HUNG


@pytest.mark.failure_case(50)
def test_lost_gpu_is_reported_and_enforced_again_when_it_is_back(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(2)
    enforcement.fake_nvml.lose(0)
    enforcement.run(30)
    assert lives(pid)
    assert reason(enforcement) is ConditionReason.GPU_LOST
    enforcement.fake_nvml.find(0)
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(51)
def test_driver_without_mps_and_graphics_lists_is_still_enforced(enforcement: EnforcementFixture) -> None:
    enforcement.fake_nvml.miss("nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v3")
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(51)
def test_no_process_is_killed_without_a_compute_list(enforcement: EnforcementFixture) -> None:
    enforcement.fake_nvml.miss("nvmlDeviceGetComputeRunningProcesses_v3")
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.run(90)
    assert lives(pid)
    assert reason(enforcement) is ConditionReason.GPU_UNREADABLE


@pytest.mark.failure_case(52)
def test_no_process_is_signalled_without_host_processes_and_it_is_reported(enforcement: EnforcementFixture) -> None:
    namespace = enforcement.fake_proc.root / "self/ns/pid"
    namespace.unlink()
    namespace.symlink_to("pid:[4026532999]")
    enforcement.start()
    enforcement.admit(1, "greedy")
    pid = enforcement.started.pid(SLEEPING)
    enforcement.fake_nvml.put(0, pid, 5000)
    enforcement.run(90)
    assert lives(pid)
    assert reason(enforcement) is ConditionReason.ENFORCEMENT_BLIND


@pytest.mark.failure_case(53)
def test_process_in_a_forged_cgroup_is_charged_to_its_own_container(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "forger")
    neighbour = enforcement.admit_and_begin(2, "neighbour", 3000)
    forger = enforcement.begin(1, 3000)
    inner = f"{systemd_path(pod_uid(1), container_id(1))}{systemd_path(pod_uid(2), container_id(2))}"
    enforcement.fake_proc.show(forger, inner)
    enforcement.run(30)
    assert lives(neighbour)
    lines = enforcement.metric("container_gpu_memory_used_bytes{")
    assert ['pod="neighbour"' in lines[0], 'pod="forger"' in lines[1], len(lines)] == [True, True, 2]
    assert all(line.endswith(" 3145728000") for line in lines)


@pytest.mark.failure_case(56, 57)
def test_container_is_enforced_once_the_api_shows_it(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "late")
    known, enforcement.list.known = enforcement.list.known, ()
    pid = enforcement.begin(1, 5000)
    enforcement.run(30)
    assert lives(pid)
    enforcement.list.known = known
    enforcement.run(6)
    await_end(pid)


@pytest.mark.failure_case(57)
def test_stale_pod_list_enforces_only_known_containers(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "known")
    enforcement.run(1)
    enforcement.list.age_seconds = 3600.0
    enforcement.admit(2, "new")
    known, new = enforcement.begin(1, 5000), enforcement.begin(2, 5000)
    enforcement.run(30)
    await_end(known)
    assert lives(new)


ELSEWHERE = {"namespace": "elsewhere"}
OTHER_ADMISSION = [{"admission": mode} for mode in ("warn", "audit", "none")]


@pytest.mark.failure_case(59)
@pytest.mark.parametrize(
    ("tenancy", "pod", "given"),
    [
        *((changes, {}, True) for changes in OTHER_ADMISSION),
        ({}, ELSEWHERE, False),
    ],
    ids=["admission warns", "admission audits", "no admission", "no tenant"],
)
def test_unallocated_gpu_use_is_only_reported_if_it_may_be_legitimate(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, tenancy: dict[str, Any], pod: dict[str, Any], *, given: bool
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy=tenancy)
    enforcement.admit(1, "wanderer", **pod) if given else enforcement.arrive(1, "wanderer", **pod)
    enforcement.admit(2, "somebody")
    pid = enforcement.begin(1, 9000, gpu=1)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.reasons("wanderer") == ["GPUNotAllocated"]
    assert enforcement.metric("gpu_stray_containers{") == [f'gpu_stray_containers{{gpu="{two_gpus.uuid(1)}"}} 1']


@pytest.mark.failure_case(59)
@pytest.mark.parametrize(
    ("tenancy", "pod", "given"),
    [
        ({}, ELSEWHERE, True),
        ({}, {}, False),
        ({"scope": "cluster"}, ELSEWHERE, False),
    ],
    ids=["holds a share", "in a tenants' namespace", "the whole cluster is fenced"],
)
def test_tenant_on_an_unallocated_gpu_has_a_cap_of_zero_there(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, tenancy: dict[str, Any], pod: dict[str, Any], *, given: bool
) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy=tenancy)
    enforcement.admit(1, "wanderer", **pod) if given else enforcement.arrive(1, "wanderer", **pod)
    enforcement.admit(2, "somebody")
    pid, owner = enforcement.begin(1, 600, gpu=1), enforcement.begin(2, 4000)
    enforcement.run(8)
    await_end(pid)
    assert lives(owner)
    assert enforcement.told.reasons("wanderer")[:2] == ["GPUNotAllocated", "GPUMemoryOverCap"]


@pytest.mark.failure_case(59)
@pytest.mark.parametrize("fault", ["unreadable", "vanished", "stale pods", "a device that nobody knows"])
def test_no_process_is_foreign_use_while_allocations_are_unknown(enforcement: EnforcementFixture, fault: str) -> None:
    enforcement.admit(1, "wanderer")
    enforcement.run(1)
    if fault == "unreadable":
        enforcement.checkpoint.write_text("{")
    elif fault == "vanished":
        enforcement.checkpoint.unlink()
    elif fault == "stale pods":
        enforcement.list.age_seconds = 2.0
    else:
        enforcement.allocate(1, SHARED, ["nvidia1/gi3"])
    pid = enforcement.begin(1, 600, gpu=1)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.told.reasons("wanderer") == ["GPUNotAllocated"]


@pytest.mark.failure_case(59)
def test_platform_pod_with_a_share_may_use_other_gpus(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, tenancy={"scope": "cluster"})
    enforcement.admit(1, "monitor", namespace="gpu-operator")
    pid = enforcement.begin(1, 600, gpu=1)
    enforcement.run(30)
    assert lives(pid)


@pytest.mark.failure_case(71)
def test_unattributed_memory_is_a_metric_and_kills_no_process(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "quiet", 3000)
    enforcement.fake_nvml.unattributed(0, 20000)
    enforcement.run(30)
    assert lives(pid)
    assert enforcement.metric("gpu_memory_unattributed_bytes{")


@pytest.mark.failure_case(73)
def test_metric_series_of_deleted_pods_are_removed(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "brief", 3000)
    enforcement.run(2)
    assert 'pod="brief"' in enforcement.metrics.registry.text()
    enforcement.started.close()
    enforcement.fake_nvml.take(0, pid)
    enforcement.list.known = ()
    enforcement.run(2)
    assert 'pod="brief"' not in enforcement.metrics.registry.text()


class FakeMps:
    """A control program that answers as it is told."""

    def __init__(self, *, state: Mps = Mps.REACHABLE, limit_mib: int | None = 4096) -> None:
        self.now, self.limit = state, limit_mib

    def state(self) -> Mps:
        return self.now

    def limit_mib(self, _device: int | str) -> int | None:
        return self.limit

    def faults(self) -> frozenset[str]:
        return frozenset()


def mps_stage(folder: Path, two_gpus: FakeNvml, process_pool: ProcessPool, mps: FakeMps) -> EnforcementFixture:
    return EnforcementFixture(folder, two_gpus, process_pool, mps=mps, mode="mps", profile="mps-01234567")


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("state", [Mps.REACHABLE, Mps.UNREACHABLE, Mps.OFF])
def test_pod_of_an_mps_client_over_its_cap_is_evicted(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, state: Mps
) -> None:
    """In a pool under MPS a daemon that is not found may only not be found."""
    enforcement = mps_stage(tmp_path, two_gpus, process_pool, FakeMps(state=state))
    pid = enforcement.admit_and_begin(1, "client", 5000)
    enforcement.run(20)
    assert lives(pid)
    assert enforcement.told.evicted[0].name == "client"
    assert "GPUProcessKilled" not in enforcement.told.reasons("client")
    assert enforcement.metric("enforcement_tier{") == []
    assert state is not Mps.REACHABLE or enforcement.metric("mps_limit_mismatch{")[0].endswith(" 0")


def test_an_mps_limit_that_is_not_the_policys_is_a_metric(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement = mps_stage(tmp_path, two_gpus, process_pool, FakeMps(limit_mib=None))
    enforcement.run(12)
    assert [line[-2:] for line in enforcement.metric("mps_limit_mismatch{")] == [" 1", " 1"]
