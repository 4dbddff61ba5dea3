"""Faults of the fake driver: injected codes and delays, lost GPUs, missing symbols, privileges, events and memory limits."""

import threading
import time

import pynvml
import pytest

from tests.support.fake_nvml import FakeNvml, build
from tests.support.fake_nvml.session import device, refused, run, session
from tests.support.process_fixtures import needs_root
from tests.support.waiting import PATIENCE


def test_injected_failure_has_its_count_start_and_gpu(fake_nvml):
    fake_nvml.fail("nvmlDeviceGetMigMode", 999, times=2, after=1, gpu=1)
    with session():
        for index, code in ((0, 0), (1, 0), (0, 0), (1, 999), (1, 999), (1, 0)):
            if code:
                with refused(code):
                    pynvml.nvmlDeviceGetMigMode(device(index))
            else:
                pynvml.nvmlDeviceGetMigMode(device(index))
        fake_nvml.fail("nvmlDeviceGetHandleByUUID", 999, gpu=1)
        pynvml.nvmlDeviceGetHandleByUUID(fake_nvml.uuid(0))
        with refused(999):
            pynvml.nvmlDeviceGetHandleByUUID(fake_nvml.uuid(1))


@pytest.mark.parametrize("function", ["nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlDeviceGetCount_v2"])
def test_functions_without_a_gpu_fail_too_until_healed(fake_nvml, function):
    fake_nvml.fail(function, 17)

    def all_calls():
        with session():
            return pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlDeviceGetCount()

    with refused(17):
        all_calls()
    fake_nvml.heal()
    assert all_calls() == ("580.95.05", 8)


def test_failures_reach_other_processes_and_a_refused_mutation_is_logged(fake_nvml):
    fake_nvml.fail("nvmlDeviceSetMigMode", 4)
    code = "try: N.nvmlDeviceSetMigMode(N.nvmlDeviceGetHandleByIndex(0), 1)\nexcept N.NVMLError as error: print(error.value)"
    assert run(fake_nvml, code) == "4\n"
    assert (fake_nvml.calls(), fake_nvml.mode(0)) == (["nvmlDeviceSetMigMode(0,1)"], (False, False))


def test_a_misspelt_function_is_refused_at_once(fake_nvml):
    unsuffixed = "nvmlDeviceGetComputeRunningProcesses"
    for inject in (
        lambda: fake_nvml.fail(unsuffixed, 3),
        lambda: fake_nvml.delay(unsuffixed, 1),
        lambda: fake_nvml.miss(unsuffixed),
    ):
        with pytest.raises(ValueError, match="the library has no"):
            inject()


@pytest.mark.failure_case(48)
def test_a_call_that_hangs_blocks_no_other_gpu_and_heals(fake_nvml):
    fake_nvml.delay("nvmlDeviceGetName", 60, gpu=1)
    with session():
        hung = threading.Thread(target=pynvml.nvmlDeviceGetName, args=(device(1),), daemon=True)
        hung.start()
        hung.join(0.05)
        assert hung.is_alive()
        assert pynvml.nvmlDeviceGetName(device(0)) == "NVIDIA A100-SXM4-40GB"
        assert run(fake_nvml, "print(N.nvmlDeviceGetCount())") == "8\n"
        fake_nvml.heal()
        hung.join(PATIENCE)
        assert not hung.is_alive()


def test_injected_delay_slows_a_call(fake_nvml):
    fake_nvml.delay("nvmlDeviceGetName", 0.05, times=1)
    with session():
        begun = time.monotonic()
        pynvml.nvmlDeviceGetName(device())
        assert time.monotonic() - begun >= 0.05


@pytest.mark.failure_case(50)
def test_lost_gpu_fails_every_call_until_found(fake_nvml):
    with session():
        handle = device(2)
        fake_nvml.lose(2)
        assert pynvml.nvmlDeviceGetCount() == 8
        with refused(15):
            device(2)
        with refused(15):
            pynvml.nvmlDeviceGetHandleByUUID(fake_nvml.uuid(2))
        with refused(15):
            pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        assert pynvml.nvmlDeviceGetMigMode(device(1)) == [0, 0]
        fake_nvml.find(2)
        assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]


@pytest.mark.failure_case(21, 22)
@pytest.mark.parametrize("code", [9, 18])
def test_init_fails_with_an_unloaded_or_mismatched_driver(fake_nvml, code):
    fake_nvml.unload(code)
    with refused(code):
        pynvml.nvmlInit()
    fake_nvml.reload()
    with session():
        assert pynvml.nvmlDeviceGetCount() == 8


@pytest.mark.failure_case(51)
def test_missing_symbol_is_missing_before_and_after_loading(fake_nvml):
    fake_nvml.miss("nvmlDeviceGetMPSComputeRunningProcesses_v3")
    fake_nvml.heal()
    code = (
        "try: N.nvmlDeviceGetMPSComputeRunningProcesses(N.nvmlDeviceGetHandleByIndex(0))\n"
        "except N.NVMLLibraryMismatchError as error: print('mismatch')\n"
        "print(hasattr(N.nvmlLib, 'nvmlDeviceGetMPSComputeRunningProcesses_v3'))"
    )
    assert run(fake_nvml, code) == "mismatch\nFalse\n"
    with session(), refused(13):
        pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(device())
    fake_nvml.load()
    assert not hasattr(pynvml.nvmlLib, "nvmlDeviceGetMPSComputeRunningProcesses_v3")


@pytest.mark.failure_case(12)
def test_changes_need_cap_sys_admin_if_the_driver_requires_it(fake_nvml):
    fake_nvml.ask_for_privilege()
    fake_nvml.set_mode(1, current=True)
    fake_nvml.add_instance(1, 19, 0)
    program = (
        "import ctypes\nlibc = ctypes.CDLL(None)\n"
        "header = (ctypes.c_uint32 * 2)(0x20080522, 0)\nassert libc.capset(header, (ctypes.c_uint32 * 6)()) == 0\n"
        "h = N.nvmlDeviceGetHandleByIndex(0)\nprint(N.nvmlDeviceGetMigMode(h))\n"
        "try: N.nvmlDeviceSetMigMode(h, 1)\nexcept N.NVMLError_NoPermission: print('no')\n"
        "h = N.nvmlDeviceGetHandleByIndex(1)\n"
        "print(N.nvmlDeviceGetComputeRunningProcesses(N.nvmlDeviceGetMigDeviceHandleByIndex(h, 0)))\n"
        "try: N.nvmlDeviceGetComputeRunningProcesses(h)\nexcept N.NVMLError_NoPermission: print('no')"
    )
    assert run(fake_nvml, program) == "[0, 0]\nno\n[]\nno\n"


@needs_root
def test_a_privileged_program_changes_what_the_driver_requires_cap_sys_admin_for(fake_nvml):
    fake_nvml.ask_for_privilege()
    with session():
        assert pynvml.nvmlDeviceSetMigMode(device(), 1) == 0


@pytest.mark.failure_case(69)
def test_xids_reach_only_registered_event_sets(fake_nvml):
    fake_nvml.xid(1, 79)
    with session():
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(device(1), pynvml.nvmlEventTypeXidCriticalError, events)
        with refused(10):
            pynvml.nvmlEventSetWait_v2(events, 1)
        fake_nvml.xid(0, 31)
        fake_nvml.xid(1, 45, gi=3)
        event = pynvml.nvmlEventSetWait_v2(events, 1000)
        assert (event.eventType, event.eventData, event.gpuInstanceId, event.computeInstanceId) == (8, 45, 3, 0)
        assert pynvml.nvmlDeviceGetUUID(event.device) == fake_nvml.uuid(1)
        with refused(10):
            pynvml.nvmlEventSetWait_v2(events, 1)
        pynvml.nvmlEventSetFree(events)


def test_waiting_event_set_receives_an_xid_immediately(fake_nvml):
    with session():
        events = pynvml.nvmlEventSetCreate()
        pynvml.nvmlDeviceRegisterEvents(device(0), 8, events)
        timer = threading.Timer(0.02, fake_nvml.xid, (0, 43))
        timer.start()
        assert pynvml.nvmlEventSetWait_v2(events, 60_000).eventData == 43
        timer.join()
        pynvml.nvmlEventSetFree(events)


def limit(cgroup, hard):
    pynvml.nvmlDeviceSetMemoryLimits_v1(device(), pynvml.c_nvmlSetMemoryLimits_v1_t(cgroup, 0, hard))


def read_limit(cgroup):
    desired = pynvml.c_nvmlGetMemoryLimits_v1_t(cgroup)
    pynvml.nvmlDeviceGetMemoryLimits_v1(device(), desired)
    return desired.hardLimit


def test_most_drivers_have_no_memory_limits(fake_nvml):
    with session(), refused(13):
        limit(b"/kubepods/a", 5)


def test_a_driver_that_offers_memory_limits_keeps_one_for_each_cgroup(fake_nvml):
    fake_nvml.offer_limits(True)
    fake_nvml.load()
    with session():
        with refused(6):
            read_limit(b"/kubepods/a")
        limit(b"/kubepods/a", 5)
        limit(b"/kubepods/b", 6)
        limit(b"/kubepods/a", 7)
        assert (read_limit(b"/kubepods/a"), fake_nvml.limits(0)) == (7, {"/kubepods/a": 7, "/kubepods/b": 6})
        limit(b"/kubepods/b", pynvml.NVML_DEVICE_MEMORY_LIMIT_MAX)
        assert fake_nvml.limits(0) == {"/kubepods/a": 7}
        with refused(2):
            limit(b"relative", 5)
    fake_nvml.set_mode(0, current=True)
    with session(), refused(3):
        limit(b"/kubepods/a", 5)
    fake_nvml.reboot()
    assert fake_nvml.limits(0) == {}


def test_one_library_is_built_per_set_of_missing_symbols(tmp_path, monkeypatch):
    monkeypatch.setenv("GPUSHARE_TEST_CACHE", str(tmp_path))
    fresh = build.library.__wrapped__
    made = fresh(), fresh(frozenset()), fresh()
    assert made[0] == made[2] != made[1]
    assert len(list(tmp_path.rglob(build.SONAME))) == 2


def test_a_state_file_is_opened_by_its_path(fake_nvml):
    FakeNvml(fake_nvml.path).lose(0)
    with session(), refused(15):
        device(0)
