"""Processes on the fake GPUs: NVML's lists of them, whose pids the caller may see, and when their rows end."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from tests.support.fake_nvml import FakeNvml, build
from tests.support.fake_nvml.session import device, refused, run, session
from tests.support.process_fixtures import needs_root

NOBODY = 900001
NONE = 0xFFFFFFFF
DETAILS = 0x1000018


def compute(handle=None):
    return [(row.pid, row.usedGpuMemory) for row in pynvml.nvmlDeviceGetComputeRunningProcesses(handle or device())]


def lists(handle):
    """Who is in the compute, graphics and MPS lists, and in the detailed lists of all four modes."""
    calls = (
        pynvml.nvmlDeviceGetComputeRunningProcesses,
        pynvml.nvmlDeviceGetGraphicsRunningProcesses,
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses,
    )
    detailed = [pynvml.nvmlDeviceGetRunningProcessDetailList(handle, DETAILS, mode) for mode in range(4)]
    return [{row.pid for row in call(handle)} for call in calls], [{row.pid for row in rows} for rows in detailed]


@pytest.fixture
def tenants(fake_nvml):
    """Start tenants; they end with the test."""
    started = []

    def start_tenant(*arguments, before=()):
        command = [*before, str(build.tenant()), *arguments]
        process = subprocess.Popen(command, env={**os.environ, **fake_nvml.environment}, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield start_tenant
    for process in started:
        process.kill()
        process.communicate()


def test_a_process_is_in_the_lists_of_its_kind_and_an_mps_client_in_that_of_compute_too(fake_nvml):
    for pid, kind in enumerate(("compute", "graphics", "mps"), NOBODY):
        fake_nvml.put(0, pid, 10, kind=kind)
    with session():
        plain, detailed = lists(device())
        with refused(25):
            pynvml.nvmlDeviceGetRunningProcessDetailList(device(), 0x2000020, 0)
    assert plain == detailed[:3] == [{NOBODY, NOBODY + 2}, {NOBODY + 1}, {NOBODY + 2}]
    assert detailed[3] == {NOBODY, NOBODY + 1, NOBODY + 2}


def test_a_process_that_computes_and_draws_uses_its_memory_once(fake_nvml):
    fake_nvml.put(0, NOBODY, 100)
    fake_nvml.put(0, NOBODY, 300, kind="graphics")
    fake_nvml.put(0, NOBODY, 120)
    with session():
        assert compute() == [(NOBODY, 120 << 20)]
        assert pynvml.nvmlDeviceGetMemoryInfo(device(), pynvml.nvmlMemory_v2).used == 300 << 20


def test_unknown_memory_and_absent_instance_ids_are_all_ones(fake_nvml):
    fake_nvml.put(0, NOBODY, None)
    with session():
        [row] = pynvml.nvmlDeviceGetComputeRunningProcesses(device())
        desired = pynvml.c_nvmlProcessDetailList_v1_t(version=DETAILS, mode=3, numProcArrayEntries=1)
        desired.procArray = details = (pynvml.c_nvmlProcessDetail_v1_t * 1)()
        assert pynvml.nvmlLib.nvmlDeviceGetRunningProcessDetailList(device(), ctypes.byref(desired)) == 0
        with pytest.raises(TypeError):  # pynvml's own wrapper of this list cannot take an unknown amount
            pynvml.nvmlDeviceGetRunningProcessDetailList(device(), DETAILS, 3)
    assert (row.pid, row.usedGpuMemory, row.gpuInstanceId, row.computeInstanceId) == (NOBODY, None, NONE, NONE)
    assert (details[0].pid, details[0].usedGpuMemory, details[0].gpuInstanceId) == (NOBODY, 2**64 - 1, NONE)


def test_the_whole_gpu_lists_the_processes_of_its_instances_and_an_instance_its_own(fake_nvml):
    fake_nvml.set_mode(0, current=True)
    one, two = fake_nvml.add_instance(0, 9, 0), fake_nvml.add_instance(0, 9, 4, cis=3)
    fake_nvml.put(0, NOBODY, 1, gi=one)
    fake_nvml.put(0, NOBODY + 1, 2, gi=two, ci=1)
    with session():
        rows = pynvml.nvmlDeviceGetComputeRunningProcesses(device())
        assert [(row.pid, row.gpuInstanceId, row.computeInstanceId) for row in rows] == [(NOBODY, one, 0), (NOBODY + 1, two, 1)]
        for uuid, expected in (
            (fake_nvml.mig_uuid(0, one), [(NOBODY, 1 << 20)]),
            (fake_nvml.mig_uuid(0, two, 0), []),
            (fake_nvml.mig_uuid(0, two, 1), [(NOBODY + 1, 2 << 20)]),
        ):
            assert compute(pynvml.nvmlDeviceGetHandleByUUID(uuid)) == expected


def test_list_length_is_queried_first(fake_nvml):
    function, count = "nvmlDeviceGetComputeRunningProcesses_v3", ctypes.c_uint(0)
    with session():
        call = getattr(pynvml.nvmlLib, function)
        assert (call(device(), ctypes.byref(count), None), count.value) == (0, 0)
        for pid in range(NOBODY, NOBODY + 3):
            fake_nvml.put(0, pid, 1)
        assert (call(device(), ctypes.byref(count), None), count.value) == (7, 3)
        few = (pynvml.c_nvmlProcessInfo_v3_t * 2)()
        count.value = 2
        assert (call(device(), ctypes.byref(count), few), count.value) == (7, 3)
        assert (few[0].pid, few[1].pid) == (0, 0)


@pytest.mark.failure_case(49)
def test_a_list_can_have_grown_between_its_two_calls(fake_nvml):
    fake_nvml.put(0, NOBODY, 1)
    fake_nvml.race(0, 1)
    with session():
        with refused(7):
            compute()
        assert compute() == [(NOBODY, 1 << 20)]


@pytest.mark.failure_case(49)
def test_at_most_950_processes_are_listed(fake_nvml):
    fake_nvml.put_raw(0, [(pid, 1, NONE, NONE) for pid in range(NOBODY, NOBODY + 1000)])
    with session():
        assert len(compute()) == 950


@pytest.mark.failure_case(44)
def test_scrambled_rows_are_listed_unchanged_and_use_no_memory(fake_nvml):
    rows = [(1184, 0, NONE, NONE), (16040, 0xFFFFFFFF00000000, 0, 1184), (0, 0xFFFFFFFFFFFFFFFF, 5, 6)]
    fake_nvml.put_raw(0, rows)
    with session():
        told = pynvml.nvmlDeviceGetComputeRunningProcesses(device())
        assert pynvml.nvmlDeviceGetMemoryInfo(device(), pynvml.nvmlMemory_v2).used == 0
    used = [2**64 - 1 if row.usedGpuMemory is None else row.usedGpuMemory for row in told]
    assert [(row.pid, bytes_, row.gpuInstanceId, row.computeInstanceId) for row, bytes_ in zip(told, used, strict=True)] == rows


def test_invented_process_stays_listed_and_a_real_one_until_it_exits(fake_nvml):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fake_nvml.put(0, NOBODY, 1)
    fake_nvml.put(0, child.pid, 2)
    with session():
        assert compute() == [(NOBODY, 1 << 20), (child.pid, 2 << 20)]
        child.kill()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, not yet reaped
        assert compute() == [(NOBODY, 1 << 20)]
        child.communicate()
        fake_nvml.take(0, NOBODY)
        assert compute() == []


def test_reused_pid_is_not_listed(fake_nvml):
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    fake_nvml.put(0, child.pid, 2)
    fake_nvml._state.gpus[0].rows[0].started += 1
    with session():
        assert compute() == []
    child.communicate(b"\n")


def test_a_tenant_holds_its_memory_until_it_is_killed(fake_nvml, tenants):
    with session():
        process = tenants("--gpu", fake_nvml.uuid(3), "--mib", "700", "--on-term", "ignore", "--comm", "train")
        assert compute(device(3)) == [(process.pid, 700 << 20)]
        assert pynvml.nvmlSystemGetProcessName(process.pid) == str(build.tenant())
        process.send_signal(signal.SIGTERM)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        assert compute(device(3)) == []
        with refused(6):
            pynvml.nvmlSystemGetProcessName(process.pid)


def test_tenant_exits_on_sigterm_and_grows_if_configured(fake_nvml, tenants):
    process = tenants("--gpu", "0", "--mib", "1", "--grow-to", "9", "--grow-after", "0", "--kind", "mps")
    with session():
        assert process.stdout.readline() == "grown\n"
        assert lists(device())[0] == [{process.pid}, set(), {process.pid}]
        assert compute() == [(process.pid, 9 << 20)]
    process.terminate()
    assert process.wait() == 0


def test_tenant_grows_immediately_on_sigusr1(fake_nvml, tenants):
    process = tenants("--gpu", "0", "--mib", "1", "--grow-to", "9", "--grow-after", "86400")
    process.send_signal(signal.SIGUSR1)
    assert process.stdout.readline() == "grown\n"


def test_a_tenant_on_a_mig_device_keeps_its_instance_busy(fake_nvml, tenants):
    fake_nvml.set_mode(0, current=True)
    gi = fake_nvml.add_instance(0, 9, 4, cis=0)
    fake_nvml.set_mode(1, current=True)
    on = fake_nvml.add_instance(1, 9, 4)
    process = tenants("--gpu", fake_nvml.mig_uuid(1, on), "--mib", "5")
    with session():
        pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(device(0), gi))
        [row] = pynvml.nvmlDeviceGetComputeRunningProcesses(device(1))
        assert (row.pid, row.gpuInstanceId, row.computeInstanceId) == (process.pid, on, 0)
        assert pynvml.nvmlDeviceSetMigMode(device(1), 0) == 19


@needs_root
@pytest.mark.failure_case(52)
def test_tenant_in_another_pid_namespace_has_the_callers_pid_or_is_hidden(fake_nvml, tenants):
    inner = tenants("--gpu", "0", "--mib", "5", before=("unshare", "--pid", "--fork", "--kill-child"))
    pid = int(Path(f"/proc/{inner.pid}/task/{inner.pid}/children").read_text())
    fake_nvml.put(0, os.getpid(), 6)
    code = "print([row.pid for row in N.nvmlDeviceGetComputeRunningProcesses(N.nvmlDeviceGetHandleByIndex(0))])"
    assert run(fake_nvml, code) == f"[{pid}, {os.getpid()}]\n"
    change = "\nprint(N.nvmlDeviceSetMigMode(N.nvmlDeviceGetHandleByIndex(0), 1))"
    elsewhere = ("unshare", "--pid", "--fork", "--mount-proc")
    assert run(fake_nvml, code + change, before=elsewhere) == "[]\n19\n", "what is not seen still uses the GPU"
    os.kill(pid, signal.SIGKILL)
    inner.wait()
    assert run(fake_nvml, code) == f"[{os.getpid()}]\n"


@needs_root
def test_tenant_needs_only_its_program_and_the_state_file(fake_nvml, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    shutil.copy(build.tenant(), root / "tenant")
    os.link(fake_nvml.path, root / "state")
    command = ["unshare", "--pid", "--fork", "--kill-child", "--root", str(root), "/tenant", "--state", "/state"]
    environment = {"PATH": os.environ["PATH"]}
    with (
        session(),
        subprocess.Popen([*command, "--gpu", "2", "--mib", "8"], env=environment, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        [(pid, used)] = compute(device(2))
        assert (Path(f"/proc/{pid}/root").readlink(), used) == (root, 8 << 20)
        process.kill()


def test_tenant_without_an_argument_uses_the_gpu_of_its_environment(fake_nvml, tenants):
    process = tenants("--mib", "5", before=("env", f"NVIDIA_VISIBLE_DEVICES={fake_nvml.uuid(2)}"))
    with session():
        assert compute(device(2)) == [(process.pid, 5 << 20)]


def test_row_of_a_dead_tenant_is_reused(fake_nvml, tenants):
    first = tenants("--gpu", "0", "--mib", "5")
    first.kill()
    first.wait()
    second = tenants("--gpu", "0", "--mib", "6")
    with session():
        assert compute() == [(second.pid, 6 << 20)]


def test_tenant_refuses_invalid_arguments(fake_nvml):
    for arguments, code in ((("--mib", "1"), 2), (("--gpu", "99", "--mib", "1"), 3), (("--gpu", "0", "--kind", "odd"), 2)):
        ended = subprocess.run(
            [str(build.tenant()), *arguments], env=fake_nvml.environment, stderr=subprocess.PIPE, check=False
        )
        assert ended.returncode == code
    assert subprocess.run([str(build.tenant()), "--gpu", "0"], env={}, stderr=subprocess.PIPE, check=False).returncode == 2


def test_the_table_of_a_gpu_can_be_full(tmp_path):
    fake_nvml = FakeNvml.make(tmp_path, ("t4",))
    fake_nvml.put_raw(0, [(pid, 1, NONE, NONE) for pid in range(NOBODY, NOBODY + 2048)])
    with pytest.raises(OverflowError):
        fake_nvml.put(0, NOBODY + 5000, 1)
    fake_nvml.take(0, NOBODY + 7)
    fake_nvml.put(0, NOBODY + 5000, 1)
