"""Which programs use the GPUs besides tenants' pods: MPS servers, and whoever keeps a GPU open; with real processes."""

from pathlib import Path

import pytest

from gpushare_node.adapters.host.programs import Machine
from gpushare_node.adapters.kube.cluster import PodView
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.processes import ProcessIdentity
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.gpus.programs import with_programs
from tests.node.gpus.gpu_node import SEVEN, GpuNode, policy
from tests.support.process_fixtures import CONTAINER_B, NAMED, POD_A, POD_B, SLEEPING, FakeProc, ProcessPool, systemd_path

MAPPED = "7f00-7f01 rw-s 00000000 00:05 1 /dev/nvidia0\n"


def pod(uid: str, name: str) -> PodView:
    return PodView(
        uids=(uid,),
        namespace="gpu-operator",
        name=name,
        labels={},
        phase="Running",
        is_terminating=False,
        owner="",
        containers={},
    )


def machine(fake_proc: FakeProc, *pods: PodView) -> Machine:
    """One on which only the processes of known pods, and those of the host, are the cluster's own."""

    def is_system(seen: ProcessIdentity, known: object) -> bool:
        uids = {candidate.pod_uid for candidate in seen.candidates}
        return not uids or any(uids & set(one.uids) for one in pods)

    plain = Machine(boot_id="boot-1", reset=lambda _: "there is no nvidia-smi on the host", make_nodes=lambda: None)
    return with_programs(plain, LinuxProcesses(fake_proc.root), pods=lambda: pods, is_system=is_system)


@pytest.mark.failure_case(76)
def test_mps_server_is_recognised_as_in_enforcement(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    name = b"nvidia-cuda-mps-server".hex()
    mine = fake_proc.show(process_pool.pid(NAMED, name), systemd_path())
    tenants = fake_proc.show(process_pool.pid(NAMED, name), systemd_path(POD_B, CONTAINER_B))
    other = fake_proc.show(process_pool.pid(SLEEPING), "/system.slice/agent.service")
    users = fake_proc.show(process_pool.pid(NAMED, name), "/system.slice/mps.service")
    for pid, uid in ((mine, 0), (tenants, 0), (other, 0), (users, 1000)):
        fake_proc.fake(pid, "status", f"Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nNSpid:\t5\n")
    assert machine(fake_proc, pod(POD_A, "mps")).find_servers({mine, tenants, other, users}) == {mine}


@pytest.mark.failure_case(77)
def test_process_that_keeps_a_gpu_open_is_reported_with_its_pod(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    dcgm = fake_proc.show(process_pool.pid(NAMED, b"nv-hostengine".hex()), systemd_path())
    daemon = fake_proc.show(process_pool.pid(NAMED, b"nvsm".hex()), "/system.slice/nvsm.service")
    fake_proc.show(process_pool.pid(SLEEPING), systemd_path(POD_B, CONTAINER_B))
    for pid in (dcgm, daemon):
        fake_proc.fake(pid, "maps", MAPPED)
    names = machine(fake_proc, pod(POD_A, "nvidia-dcgm-x")).name_openers()
    assert set(names) == {
        f"process {dcgm} (nv-hostengine) of pod gpu-operator/nvidia-dcgm-x",
        f"process {daemon} (nvsm) of the host's nvsm.service",
    }


@pytest.mark.failure_case(96)
@pytest.mark.parametrize(
    ("cgroup", "told"),
    [
        ("/system.slice/nvidia-dcgm.service", " of the host's nvidia-dcgm.service"),
        ("/../../../system.slice/nvsm.service/worker", " of the host's nvsm.service"),
        ("/system.slice/system-nvsm.slice/nvsm@1.service", " of the host's nvsm@1.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/nvsm.service", ""),
        ("/system.slice/a\x1b[2J.service", ""),
        ("/init.scope", ""),
    ],
)
def test_host_service_is_reported_by_its_systemd_unit(
    fake_proc: FakeProc, process_pool: ProcessPool, cgroup: str, told: str
) -> None:
    pid = fake_proc.show(process_pool.pid(NAMED, b"nv-hostengine".hex()), cgroup)
    fake_proc.fake(pid, "maps", MAPPED)
    assert machine(fake_proc).name_openers() == (f"process {pid} (nv-hostengine){told}",)


@pytest.mark.failure_case(96)
def test_units_are_those_of_the_host_alone(fake_proc: FakeProc, process_pool: ProcessPool) -> None:
    service = fake_proc.show(process_pool.pid(SLEEPING), "/system.slice/amd-metrics-exporter.service")
    tenants = fake_proc.show(process_pool.pid(SLEEPING), systemd_path(POD_B, CONTAINER_B))
    assert machine(fake_proc).find_units([service, tenants, 1 << 22]) == {service: "amd-metrics-exporter.service"}


def test_running_dgx_services_block_the_mode_change(tmp_path: Path) -> None:
    """They are no pods and no label pauses them: nothing is broken, they are named, and the next run goes through."""
    node = GpuNode(tmp_path)
    node.openers = tuple(f"process 812 of the host's {service}" for service in ("nvidia-dcgm.service", "nvsm.service"))
    node.fake_nvml.reset_blocked(0, 19, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.CLIENTS_RUNNING
    assert all(service in change.message for service in ("nvidia-dcgm.service", "nvsm.service"))
    assert "systemctl stop" in change.reason.value.remedy
    assert node.fake_nvml.mode(0)[0] == 0
    node.openers = ()
    node.fake_nvml.reset_blocked(0, 19, 0)
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)


@pytest.mark.failure_case(77)
@pytest.mark.parametrize(
    ("openers", "told"),
    [
        ((), "no process in /proc"),
        (("process 812 (nvsm)", "process 4711 (dcgm) of pod gpu-operator/dcgm-x"), "(nvsm), process 4711 (dcgm) of pod"),
        (tuple(f"process {pid}" for pid in range(8)), "process 4 and 3 more"),
    ],
    ids=["nobody", "two", "many"],
)
def test_remaining_gpu_clients_are_reported(tmp_path: Path, openers: tuple[str, ...], told: str) -> None:
    node = GpuNode(tmp_path)
    node.openers = openers
    node.fake_nvml.reset_blocked(0, 19, -1)
    change = node.run(policy(SEVEN))
    assert change.reason is ConditionReason.CLIENTS_RUNNING
    assert told in change.message
