"""The library: how calls fail, what is told of them, and what of pynvml's inside we lean on."""

import ctypes
import struct
from collections.abc import Callable
from pathlib import Path

import pynvml
import pytest

from gpushare_node.vendors.driver import Code, DriverError
from gpushare_node.vendors.nvidia.library import Library
from gpushare_node.vendors.nvidia.process_lists import DETAILED, PLAIN
from gpushare_node.vendors.nvidia.session import Session, scrambles_lists
from tests.support.fake_nvml import FakeNvml
from tests.support.paths import ROOT

PACKAGE = ROOT / "node-runtime" / "gpushare_node"


def refusal(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(DriverError) as caught:
        call()
    return caught.value.call, caught.value.code


def test_pynvml_is_imported_in_one_module_only() -> None:
    importing = [path.name for path in PACKAGE.rglob("*.py") if "import pynvml" in path.read_text()]
    assert importing == ["library.py"]


def test_pynvml_has_the_private_names_we_use() -> None:
    for name in (
        "nvmlLib",
        "NVMLError",
        "NVMLLibraryMismatchError",
        "NVML_GPU_INSTANCE_PROFILE_COUNT",
        "nvmlMemory_v2",
        "NVML_COMPUTE_INSTANCE_PROFILE_COUNT",
        "c_nvmlGpuInstance_t",
        "c_nvmlComputeInstance_t",
        "nvmlProcessDetailList_v1",
        "c_nvmlGpuInstancePlacement_t",
        "c_nvmlProcessDetailList_t",
        "c_nvmlProcessDetail_v1_t",
    ):
        assert hasattr(pynvml, name), f"pynvml has no {name} any more: gpushare_node/vendors/nvidia must be changed"


@pytest.mark.parametrize(
    ("record", "structure", "fields"),
    [
        (PLAIN, pynvml.c_nvmlProcessInfo_v3_t, ("pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId")),
        (PLAIN, pynvml.c_nvmlProcessInfo_v2_t, ("pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId")),
        (
            DETAILED,
            pynvml.c_nvmlProcessDetail_v1_t,
            ("pid", "usedGpuMemory", "gpuInstanceId", "computeInstanceId", "usedGpuCcProtectedMemory"),
        ),
    ],
)
def test_process_records_match_pynvmls_structures(
    record: struct.Struct, structure: type[ctypes.Structure], fields: tuple[str, ...]
) -> None:
    values = tuple(range(1, len(fields) + 1))
    packed = bytes(structure(**dict(zip(fields, values, strict=True))))
    assert (len(packed), record.unpack(packed)) == (record.size, values)


def test_an_error_is_reported_by_call_and_code_without_asking_the_library(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    fake_nvml.fail("nvmlSystemGetNVMLVersion", 19)
    fake_nvml.delay("nvmlErrorString", 60)
    fake_nvml.fail("nvmlDeviceGetCount_v2", 4711)
    assert refusal(session.versions) == ("nvmlSystemGetNVMLVersion", Code.IN_USE)
    with pytest.raises(DriverError, match=r"^nvmlDeviceGetCount: NVML error 4711$"):
        session.survey()


def test_a_library_that_is_not_there_is_code_12(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_library(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    assert refusal(Session.open) == ("nvmlInit", Code.LIBRARY_NOT_FOUND)


@pytest.mark.failure_case(22)
@pytest.mark.parametrize("code", [Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH, Code.NO_PERMISSION])
def test_a_driver_that_is_not_ready_is_reported_by_its_code_and_opens_later(fake_nvml: FakeNvml, code: Code) -> None:
    fake_nvml.unload(code)
    assert refusal(Session.open) == ("nvmlInit", code)
    fake_nvml.reload()
    assert Session.open().versions().driver == "580.95.05"


def test_function_missing_in_pynvml_or_driver_is_code_13(fake_nvml: FakeNvml) -> None:
    library = Library()
    library.call("nvmlInit")
    assert refusal(lambda: library.call("nvmlSomethingNewer")) == ("nvmlSomethingNewer", Code.FUNCTION_NOT_FOUND)
    assert refusal(lambda: library.call("nvmlSystemGetHicVersion"))[1] == Code.FUNCTION_NOT_FOUND
    assert library.raw("nvmlSomethingNewer") == Code.FUNCTION_NOT_FOUND
    assert not library.has("nvmlSystemGetHicVersion")
    assert library.has("nvmlSystemGetDriverVersion")


@pytest.mark.failure_case(51)
def test_unversioned_pynvml_symbol_error_is_code_13(fake_nvml: FakeNvml) -> None:
    library = Library()
    library.call("nvmlInit")
    handle = library.call("nvmlDeviceGetHandleByIndex", 0)
    fake_nvml.miss("nvmlDeviceGetComputeRunningProcesses_v3")
    unversioned = "nvmlDeviceGetComputeRunningProcesses"
    assert refusal(lambda: library.call(unversioned, handle)) == (unversioned, Code.FUNCTION_NOT_FOUND)


def test_undecodable_text_is_an_error(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    fake_nvml._state.driver = b"\xff\xfe"
    assert refusal(session.versions) == ("nvmlSystemGetDriverVersion", Code.UNKNOWN)


def test_every_call_is_reported_with_its_time_and_its_code(fake_nvml: FakeNvml) -> None:
    told: list[tuple[str, float, int | None]] = []
    session = Session.open(lambda *call: told.append(call))
    fake_nvml.delay("nvmlSystemGetDriverVersion", 0.02, times=1)
    session.versions()
    times = {name: (seconds, code) for name, seconds, code in told}
    fake_nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", 999)
    refusal(lambda: session.read_device(fake_nvml.uuid(0)))
    codes = {name: code for name, _, code in told}
    assert times["nvmlSystemGetDriverVersion"][0] >= 0.02
    assert times["nvmlSystemGetDriverVersion"][1] is None
    assert codes["nvmlDeviceGetComputeRunningProcesses_v3"] == Code.UNKNOWN


def test_waiting_for_events_is_not_timed_as_a_call(fake_nvml: FakeNvml) -> None:
    told: list[str] = []
    session = Session.open(lambda name, *_: told.append(name))
    assert session.next_xid(1) is None
    assert "nvmlEventSetWait_v2" not in told


@pytest.mark.parametrize(
    ("driver", "scrambles"),
    [
        ("525.147.05", False),
        ("530.30.02", True),
        ("530", True),
        ("535.54.03", True),
        ("535.129.03", True),
        ("535.154", True),
        ("535.154.04", True),
        ("535.154.05", False),
        ("535.161.08", False),
        ("550.54.14", False),
        ("580.95.05", False),
        ("470.57.02", False),
        ("", True),
        ("535.x", True),
        ("N/A", True),
        ("٥٣٥.1", True),
    ],
)
def test_drivers_with_scrambled_process_lists_are_recognised_by_version(driver: str, scrambles: bool) -> None:
    assert scrambles_lists(driver) is scrambles


def test_closing_a_session_twice_shuts_nvml_down_once(fake_nvml: FakeNvml) -> None:
    session, other = Session.open(), Session.open()
    session.next_xid(1)
    session.close()
    session.close()
    assert other.versions().nvml
    other.close()
    count = ctypes.c_uint()
    assert pynvml.nvmlLib.nvmlDeviceGetCount_v2(ctypes.byref(count)) == Code.UNINITIALIZED


def test_closing_does_not_fail_even_if_the_driver_refuses(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    session.next_xid(1)
    fake_nvml.fail("nvmlEventSetFree", 999)
    fake_nvml.fail("nvmlShutdown", 999)
    session.close()
    fake_nvml.heal()
    assert Session.open().versions().driver == "580.95.05"


def test_read_only_session_changes_no_gpu(tmp_path: Path) -> None:
    fake_nvml = FakeNvml.make(tmp_path, ("a100-sxm4-40gb",))
    fake_nvml.load()
    fake_nvml.offer_limits()
    fake_nvml.set_mode(0, current=True)
    instance = fake_nvml.add_instance(0, 9, 4)
    session, uuid, before = Session.open(reads_only=True), fake_nvml.uuid(0), fake_nvml.show()
    session.survey()
    session.read_device(uuid)
    writes: list[Callable[[], object]] = [
        lambda: session.set_mig(uuid, enabled=False),
        lambda: session.create_instance(uuid, profile_id=19, start=0, size=1),
        lambda: session.create_compute(uuid, instance),
        lambda: session.destroy_compute(uuid, instance, 0),
        lambda: session.destroy_instance(uuid, instance),
        lambda: session.reset_compute_mode(uuid),
        lambda: session.set_memory_limit(uuid, "/kubepods", 1 << 30),
    ]
    for write in writes:
        with pytest.raises(DriverError) as refused:
            write()
        assert refused.value.code == Code.NO_PERMISSION
    session.close()
    assert fake_nvml.show() == before
    assert not any(name.startswith(("nvmlDeviceSet", "nvmlDeviceCreate")) or "Destroy" in name for name in fake_nvml.calls())
