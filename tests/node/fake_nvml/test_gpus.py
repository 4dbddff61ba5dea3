"""The fake NVML itself, through real pynvml: what GPUs it shows, and that several processes see one node."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pynvml
import pytest

from gpushare.facts.catalog import cards
from tests.support.fake_nvml import FakeNvml, build
from tests.support.fake_nvml.session import device, profiles, refused, run, session, start

MIB = 1 << 20
CARDS = ("a100-sxm4-40gb", "a30", "h100-sxm5-80gb", "b200-180gb", "rtx-pro-6000-server", "t4", "v100-sxm2-16gb", "l4")


@pytest.fixture
def mixed(tmp_path):
    """A node with one GPU of each of CARDS."""
    made = FakeNvml.make(tmp_path, CARDS)
    made.load()
    return made


def test_pynvml_has_the_private_names_that_load_relies_on():
    assert {"nvmlLib", "_nvmlLib_refcount", "_nvmlGetFunctionPointer_cache"} <= vars(pynvml).keys()


def test_every_exported_symbol_is_used_by_pynvml():
    source = Path(pynvml.__file__).read_text()
    assert [name for name in build.symbols() - {"nvmlInit_v2"} if f'"{name}"' not in source] == []


@pytest.mark.parametrize("index", range(len(CARDS)), ids=CARDS)
def test_gpu_matches_the_catalogue(mixed, index):
    card = cards.load(CARDS[index])
    assert card.memory_mib is not None
    with session():
        handle = device(index)
        assert pynvml.nvmlDeviceGetName(handle) == card.name
        assert pynvml.nvmlDeviceGetUUID(handle) == mixed.uuid(index)
        assert pynvml.nvmlDeviceGetCudaComputeCapability(handle) == card.compute_capability
        assert pynvml.nvmlDeviceGetPciInfo(handle).pciDeviceId == int(card.pci_device_ids[0], 16)
        assert pynvml.nvmlDeviceGetBrand(handle) == pynvml.NVML_BRAND_NVIDIA
        assert pynvml.nvmlDeviceGetVirtualizationMode(handle) == pynvml.NVML_GPU_VIRTUALIZATION_MODE_NONE
        assert pynvml.nvmlDeviceGetMemoryInfo(handle).total == card.memory_mib * MIB
        if card.mig is None:
            with refused(3):
                pynvml.nvmlDeviceGetMigMode(handle)
            with refused(3):
                pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, 0)
        else:
            assert pynvml.nvmlDeviceGetMigMode(handle) == [0, 0]
            assert set(profiles(handle)) == {profile.name for profile in card.mig.profiles}


def test_gpus_are_found_by_index_uuid_and_pci_address(mixed):
    with session():
        bus = pynvml.nvmlDeviceGetPciInfo(device(3)).busId
        found = (pynvml.nvmlDeviceGetHandleByUUID(mixed.uuid(3)), pynvml.nvmlDeviceGetHandleByPciBusId(bus))
        assert [pynvml.nvmlDeviceGetName(handle) for handle in found] == ["NVIDIA B200"] * 2
        assert len({pynvml.nvmlDeviceGetUUID(device(index)) for index in range(pynvml.nvmlDeviceGetCount())}) == len(CARDS)
        with refused(6):
            pynvml.nvmlDeviceGetHandleByUUID("GPU-none")
        with refused(2):
            device(len(CARDS))


def test_versions_belong_together(tmp_path, fake_nvml):
    with session():
        assert pynvml.nvmlSystemGetDriverVersion() == "580.95.05"
        assert pynvml.nvmlSystemGetNVMLVersion() == "13.580.95.05"
        assert pynvml.nvmlSystemGetCudaDriverVersion_v2() == 13000
    FakeNvml.make(tmp_path / "older", driver="535.104.05").load()
    with session():
        assert (pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion_v2()) == ("535.104.05", 12020)


def test_reserved_memory_is_part_of_used_only_in_version_one(fake_nvml):
    fake_nvml.put(0, 900001, 1000)
    fake_nvml.put(0, 900002, None)
    fake_nvml.unattributed(0, 500)
    with session():
        first, second = (pynvml.nvmlDeviceGetMemoryInfo(device(), version) for version in (None, pynvml.nvmlMemory_v2))
        assert second.used == 1500 * MIB
        assert second.reserved > 0
        assert first.used == second.used + second.reserved
        assert first.free == second.free == first.total - first.used


def test_field_values_report_resetless_mig_and_recovery(mixed):
    mixed.recovery(1, 2)
    with session():
        told = {
            card: [value.value.uiVal for value in pynvml.nvmlDeviceGetFieldValues(device(index), [184, 199, 230])]
            for index, card in enumerate(CARDS)
        }
        assert pynvml.nvmlDeviceGetFieldValues(device(), [9999])[0].nvmlReturn == 3
    assert (told["a30"], told["h100-sxm5-80gb"], told["t4"]) == ([0, 1, 2], [1, 1, 0], [0, 0, 0])


def test_the_compute_mode_is_kept_until_reboot(fake_nvml):
    with session():
        pynvml.nvmlDeviceSetComputeMode(device(), 3)
        assert pynvml.nvmlDeviceGetComputeMode(device()) == fake_nvml.compute_mode(0) == 3
        with refused(2):
            pynvml.nvmlDeviceSetComputeMode(device(), 7)
    fake_nvml.reboot()
    assert fake_nvml.compute_mode(0) == 0


def test_a_handle_is_void_after_shutdown_and_without_init(fake_nvml):
    with session():
        handle = device()
    with refused(1):
        pynvml.nvmlDeviceGetName(handle)
    with session(), refused(2):
        pynvml.nvmlDeviceGetName(handle)


def test_two_processes_see_one_node(fake_nvml):
    run(fake_nvml, "N.nvmlDeviceSetMigMode(N.nvmlDeviceGetHandleByIndex(2), 1)")
    assert fake_nvml.mode(2) == (True, True)
    fake_nvml.put(3, 900001, 7)
    seen = run(fake_nvml, "print(N.nvmlDeviceGetMemoryInfo(N.nvmlDeviceGetHandleByIndex(3), N.nvmlMemory_v2).used)")
    assert int(seen) == 7 * MIB


def test_a_process_killed_in_the_middle_of_its_calls_leaves_no_lock_and_no_damage(fake_nvml):
    code = (
        "h = N.nvmlDeviceGetHandleByIndex(0)\nprint('on', flush=True)\n"
        "while True: N.nvmlDeviceSetComputeMode(h, 3); N.nvmlDeviceSetComputeMode(h, 0)"
    )
    for _ in range(3):
        fake_nvml.forget_calls()
        process = start(fake_nvml, code)
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.kill()
        process.communicate()
        with session():
            assert pynvml.nvmlDeviceGetComputeMode(device()) in {0, 3}
        fake_nvml.put(0, 900001, 1)


def test_calls_of_many_processes_and_threads_are_each_counted_once(fake_nvml):
    code = (
        "from threading import Thread\nh = N.nvmlDeviceGetHandleByIndex(0)\n"
        "def work():\n    for _ in range(100): N.nvmlDeviceSetComputeMode(h, 3)\n"
        "threads = [Thread(target=work) for _ in range(2)]\n[one.start() for one in threads]\n[one.join() for one in threads]"
    )
    processes = [start(fake_nvml, code) for _ in range(3)]
    assert [process.communicate() and process.returncode for process in processes] == [0, 0, 0]
    assert fake_nvml.calls() == ["nvmlDeviceSetComputeMode(0,3)"] * 600


def test_a_forked_child_takes_the_lock_for_itself(fake_nvml):
    with session():
        child = os.fork()
        if child == 0:  # the session is inherited, as a hung driver's would be
            pynvml.nvmlDeviceSetComputeMode(device(), 2)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert pynvml.nvmlDeviceGetComputeMode(device()) == 2


@pytest.mark.parametrize(("moment", "switched"), [("before", [True, False, False]), ("after", [True, True, False])])
def test_a_process_dies_at_the_planned_call(fake_nvml, moment, switched):
    getattr(fake_nvml, f"kill_{moment}")(2)
    process = start(fake_nvml, "for gpu in (0, 1, 2): N.nvmlDeviceSetMigMode(N.nvmlDeviceGetHandleByIndex(gpu), 1)")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert fake_nvml.calls() == ["nvmlDeviceSetMigMode(0,1)", "nvmlDeviceSetMigMode(1,1)"]
    assert [fake_nvml.mode(gpu)[0] for gpu in (0, 1, 2)] == switched


def test_invalid_state_file_means_no_driver(fake_nvml, tmp_path):
    other = tmp_path / "other"
    other.write_bytes(b"\0" * fake_nvml.path.stat().st_size)
    os.environ["GPUSHARE_FAKE_NVML"] = str(other)
    with refused(9):
        pynvml.nvmlInit()


def test_the_command_line_makes_fills_and_shows_a_node(tmp_path):
    def fake_nvml_command(*arguments, **environment):
        command = [sys.executable, "-m", "tests.support.fake_nvml", *arguments]
        return subprocess.run(command, env={**os.environ, **environment}, check=True, capture_output=True, text=True).stdout

    made = dict(line.split("=", 1) for line in fake_nvml_command("make", str(tmp_path), "t4").splitlines())
    fake_nvml_command("put", "0", "900001", "300", "--kind", "mps", **made)
    assert "900001" in fake_nvml_command("show", **made)
    fake_nvml_command("take", "0", "900001", **made)
    assert "900001" not in fake_nvml_command("show", **made)


def test_gpus_are_connected_by_pci_alone(mixed):
    with session():
        first, second = device(0), device(1)
        assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == pynvml.NVML_TOPOLOGY_HOSTBRIDGE
        with refused(2):
            pynvml.nvmlDeviceGetTopologyCommonAncestor(first, first)
        for ask in (pynvml.nvmlDeviceGetNvLinkState, pynvml.nvmlDeviceGetNvLinkRemotePciInfo):
            with refused(3):
                ask(first, 0)
