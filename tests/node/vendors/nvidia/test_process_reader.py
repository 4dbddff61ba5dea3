"""Reading a GPU: rows as the driver has them, junk included; and that nothing kept between cycles outlives its truth."""

from pathlib import Path
from typing import Any

import pynvml
import pytest

from gpushare_node.guard.process_list import Kind, MigInstance, ProcessEntry, ProcessUsage, RejectReason, validate
from gpushare_node.vendors.driver import Code, DriverError
from gpushare_node.vendors.nvidia import process_lists
from gpushare_node.vendors.nvidia.session import Session
from tests.support.fake_nvml import FakeNvml

PID = 4_300_001
NONE = 0xFFFFFFFF
UNKNOWN = (1 << 64) - 1
MIB = 1 << 20


def census_code(session: Session, uuid: str) -> int:
    with pytest.raises(DriverError) as caught:
        session.read_device(uuid)
    return caught.value.code


def old_driver(folder: Path, driver: str) -> FakeNvml:
    fake_nvml = FakeNvml.make(folder, driver=driver)
    fake_nvml.load()
    return fake_nvml


def calls_of(session: Session, uuid: str, told: list[str]) -> list[str]:
    told.clear()
    session.read_device(uuid)
    return list(told)


def test_gpu_reading_has_its_process_rows_and_memory(fake_nvml: FakeNvml) -> None:
    fake_nvml.put(0, PID, 1000)
    fake_nvml.put(0, PID + 1, 500, kind="graphics")
    fake_nvml.put(0, PID + 2, 300, kind="mps")
    fake_nvml.unattributed(0, 70)
    device = Session.open(pid_max=99).read_device(fake_nvml.uuid(0))
    assert device.rows == (
        ProcessEntry(pid=PID, used_bytes=1000 * MIB),
        ProcessEntry(pid=PID + 2, used_bytes=300 * MIB),
        ProcessEntry(pid=PID + 1, used_bytes=500 * MIB, kind=Kind.GRAPHICS),
        ProcessEntry(pid=PID + 2, used_bytes=300 * MIB, kind=Kind.MPS),
    )
    assert (device.uuid, device.instances, device.pid_max) == (fake_nvml.uuid(0), None, 99)
    assert device.used_bytes == 1870 * MIB, "without the driver's reserve"


@pytest.mark.failure_case(61)
def test_process_in_two_lists_has_one_row_per_list(fake_nvml: FakeNvml) -> None:
    fake_nvml.put(0, PID, 1000)
    fake_nvml.put(0, PID, 1000, kind="graphics")
    rows = Session.open().read_device(fake_nvml.uuid(0)).rows
    assert rows is not None
    assert [(row.pid, row.kind) for row in rows] == [(PID, Kind.COMPUTE), (PID, Kind.GRAPHICS)]


@pytest.mark.failure_case(44, 45)
@pytest.mark.parametrize(
    "rows",
    [
        [(1184, 0, NONE, NONE), (16040, 4_294_967_295, 16040, 0)],
        [(0, PID, NONE, NONE)],
        [(3_221_225_472, PID, NONE, NONE)],
        [(PID, 1000 * MIB, 7, 7)],
        [(PID, 1 << 60, NONE, NONE)],
    ],
)
def test_scrambled_rows_are_read_unchanged_and_rejected(fake_nvml: FakeNvml, rows: list[tuple[int, int, int, int]]) -> None:
    fake_nvml.put_raw(0, rows)
    device = Session.open().read_device(fake_nvml.uuid(0))
    assert device.rows is not None
    assert [(row.pid, row.used_bytes) for row in device.rows] == [(pid, used) for pid, used, _, _ in rows]
    assert isinstance(validate(device), RejectReason)


@pytest.mark.failure_case(46)
def test_process_of_unknown_memory_is_read_as_none(fake_nvml: FakeNvml) -> None:
    fake_nvml.put(0, PID, None)
    fake_nvml.put_raw(0, [(PID + 1, UNKNOWN, NONE, NONE)])
    rows = Session.open().read_device(fake_nvml.uuid(0)).rows
    assert rows is not None
    assert [row.used_bytes for row in rows] == [None, None]


@pytest.mark.failure_case(49)
def test_a_list_longer_than_the_buffer_is_read_whole(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    fake_nvml.put_raw(0, [(PID + number, 2 * MIB, NONE, NONE) for number in range(700)])
    rows = session.read_device(fake_nvml.uuid(0)).rows
    assert rows is not None
    assert [row.pid for row in rows] == [PID + number for number in range(700)]


@pytest.mark.failure_case(49)
@pytest.mark.parametrize("driver", ["580.95.05", "535.129.03"])
def test_list_that_grows_during_reading_is_reread_a_limited_number_of_times(tmp_path: Path, driver: str) -> None:
    fake_nvml = old_driver(tmp_path, driver)
    session = Session.open()
    fake_nvml.put(0, PID, 100)
    fake_nvml.race(0, 3)
    assert session.read_device(fake_nvml.uuid(0)).rows == (ProcessEntry(pid=PID, used_bytes=100 * MIB),)
    fake_nvml.race(0, 100)
    assert census_code(session, fake_nvml.uuid(0)) == Code.INSUFFICIENT_SIZE


@pytest.mark.failure_case(49)
def test_list_truncated_by_the_driver_is_reported_as_truncated(fake_nvml: FakeNvml) -> None:
    for number in range(1200):
        fake_nvml.put(0, 4_190_000 + number, 2)
    device = Session.open().read_device(fake_nvml.uuid(0))
    assert device.rows is not None
    assert len(device.rows) == 950
    usage = validate(device)
    assert isinstance(usage, ProcessUsage)
    assert usage.is_cut


def test_more_rows_than_the_buffer_holds_is_an_error(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(_handle: object, count: Any, _buffer: object) -> int:
        count._obj.value = 1 << 30
        return 0

    session = Session.open()
    monkeypatch.setattr(pynvml.nvmlLib, "nvmlDeviceGetComputeRunningProcesses_v3", answer)
    assert census_code(session, fake_nvml.uuid(0)) == Code.INSUFFICIENT_SIZE


@pytest.mark.failure_case(50)
def test_lost_gpu_fails_alone_and_recovers(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    fake_nvml.put(0, PID, 100)
    before = session.read_device(fake_nvml.uuid(0))
    fake_nvml.lose(0)
    assert census_code(session, fake_nvml.uuid(0)) == Code.GPU_IS_LOST
    assert session.read_device(fake_nvml.uuid(1)).rows == ()
    fake_nvml.find(0)
    assert session.read_device(fake_nvml.uuid(0)) == before


@pytest.mark.failure_case(50)
def test_a_gpu_that_has_failed_is_looked_up_again(fake_nvml: FakeNvml) -> None:
    told: list[str] = []
    session = Session.open(lambda name, *_: told.append(name))
    session.read_device(fake_nvml.uuid(0))
    assert "nvmlDeviceGetHandleByUUID" not in calls_of(session, fake_nvml.uuid(0), told)
    fake_nvml.fail("nvmlDeviceGetMemoryInfo_v2", Code.UNKNOWN, times=1)
    assert census_code(session, fake_nvml.uuid(0)) == Code.UNKNOWN
    assert "nvmlDeviceGetHandleByUUID" in calls_of(session, fake_nvml.uuid(0), told)


@pytest.mark.failure_case(51)
@pytest.mark.parametrize("code", [Code.FUNCTION_NOT_FOUND, Code.NOT_SUPPORTED])
@pytest.mark.parametrize("word", ["MPSCompute", "Graphics"])
def test_missing_process_list_leaves_the_others_readable(fake_nvml: FakeNvml, word: str, code: Code) -> None:
    told: list[str] = []
    session = Session.open(lambda name, *_: told.append(name))
    fake_nvml.put(0, PID, 100)
    fake_nvml.fail(f"nvmlDeviceGet{word}RunningProcesses_v3", code)
    for _ in range(2):
        assert session.read_device(fake_nvml.uuid(0)).rows == (ProcessEntry(pid=PID, used_bytes=100 * MIB),)
    assert any(word in call for call in calls_of(session, fake_nvml.uuid(0), told)) is (code == Code.NOT_SUPPORTED)


@pytest.mark.failure_case(51)
def test_older_list_version_is_used_if_the_newest_is_missing(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.put(0, PID, 100)
    older = pynvml.nvmlLib.nvmlDeviceGetComputeRunningProcesses_v3
    monkeypatch.setitem(process_lists._SYMBOLS, Kind.COMPUTE, ("nvmlDeviceGetComputeRunningProcesses_v9", "older"))
    monkeypatch.setattr(pynvml.nvmlLib, "older", older, raising=False)
    assert Session.open().read_device(fake_nvml.uuid(0)).rows == (ProcessEntry(pid=PID, used_bytes=100 * MIB),)


@pytest.mark.failure_case(51)
def test_missing_compute_list_makes_the_gpu_unreadable(fake_nvml: FakeNvml) -> None:
    fake_nvml.miss("nvmlDeviceGetComputeRunningProcesses_v3")
    fake_nvml.load()
    assert census_code(Session.open(), fake_nvml.uuid(0)) == Code.FUNCTION_NOT_FOUND


@pytest.mark.failure_case(44)
def test_driver_with_scrambled_lists_is_read_through_the_detail_list(tmp_path: Path) -> None:
    fake_nvml = old_driver(tmp_path, "535.129.03")
    fake_nvml.put(0, PID, 100)
    fake_nvml.put(0, PID + 1, None, kind="mps")
    told: list[str] = []
    session = Session.open(lambda name, *_: told.append(name))
    assert session.read_device(fake_nvml.uuid(0)).rows == (
        ProcessEntry(pid=PID, used_bytes=100 * MIB),
        ProcessEntry(pid=PID + 1, used_bytes=None),
        ProcessEntry(pid=PID + 1, used_bytes=None, kind=Kind.MPS),
    )
    assert not [name for name in told if "RunningProcesses" in name]
    assert session.unreliable() == frozenset()


@pytest.mark.failure_case(44)
@pytest.mark.parametrize("code", [Code.FUNCTION_NOT_FOUND, Code.NOT_SUPPORTED, Code.INVALID_ARGUMENT, 25])
def test_a_driver_that_may_scramble_and_has_no_other_list_is_called_unreliable(tmp_path: Path, code: int) -> None:
    fake_nvml = old_driver(tmp_path, "535.54.03")
    fake_nvml.fail("nvmlDeviceGetRunningProcessDetailList", code, gpu=0)
    fake_nvml.put(0, PID, 100)
    session = Session.open()
    for gpu in (0, 1):
        session.read_device(fake_nvml.uuid(gpu))
    assert session.read_device(fake_nvml.uuid(0)).rows == (ProcessEntry(pid=PID, used_bytes=100 * MIB),)
    assert session.unreliable() == {fake_nvml.uuid(0)}


def test_a_new_driver_is_never_unreliable(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    session.read_device(fake_nvml.uuid(0))
    assert session.unreliable() == frozenset()


@pytest.mark.parametrize("total", [0, UNKNOWN])
def test_unknown_total_memory_is_none(fake_nvml: FakeNvml, total: int) -> None:
    fake_nvml._state.gpus[0].memory_bytes = total
    device = Session.open().read_device(fake_nvml.uuid(0))
    assert device.total_bytes is None
    assert validate(device) is RejectReason.TOTAL_UNKNOWN


def test_old_driver_reports_total_but_not_used_memory(fake_nvml: FakeNvml) -> None:
    whole = Session.open().read_device(fake_nvml.uuid(0))
    fake_nvml.miss("nvmlDeviceGetMemoryInfo_v2")
    device = Session.open().read_device(fake_nvml.uuid(0))
    assert (device.total_bytes, device.used_bytes) == (whole.total_bytes, None)


def test_only_changed_rows_are_rebuilt(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    fake_nvml.put(0, PID, 100)
    first = session.read_device(fake_nvml.uuid(0)).rows
    again = session.read_device(fake_nvml.uuid(0)).rows
    assert first is not None
    assert again is not None
    assert again[0] is first[0]
    fake_nvml.put(0, PID, 101)
    assert session.read_device(fake_nvml.uuid(0)).rows == (ProcessEntry(pid=PID, used_bytes=101 * MIB),)
    fake_nvml.clear(0)
    assert session.read_device(fake_nvml.uuid(0)).rows == ()


def mig_node(fake_nvml: FakeNvml) -> tuple[Session, int, int]:
    fake_nvml.set_mode(0, True)
    first, second = fake_nvml.add_instance(0, 9, 4), fake_nvml.add_instance(0, 9, 0)
    return Session.open(), first, second


@pytest.mark.failure_case(60)
def test_mig_instances_are_separate_devices(fake_nvml: FakeNvml) -> None:
    session, first, second = mig_node(fake_nvml)
    fake_nvml.put(0, PID, 100, gi=first)
    fake_nvml.put(0, PID + 1, 200, gi=second)
    device = session.read_device(fake_nvml.uuid(0))
    assert device.rows == (
        ProcessEntry(pid=PID, used_bytes=100 * MIB, gpu_instance=first),
        ProcessEntry(pid=PID + 1, used_bytes=200 * MIB, gpu_instance=second),
    )
    assert device.instances is not None
    assert {number: one.uuid for number, one in device.instances.items()} == {
        first: fake_nvml.mig_uuid(0, first),
        second: fake_nvml.mig_uuid(0, second),
    }
    assert device.total_bytes is not None
    for one in device.instances.values():
        assert one.total_bytes is not None
        assert 0.4 < one.total_bytes / device.total_bytes < 0.55


@pytest.mark.failure_case(60)
def test_lists_that_only_the_privileged_get_for_the_whole_gpu_are_read_by_instance(fake_nvml: FakeNvml) -> None:
    session, first, second = mig_node(fake_nvml)
    fake_nvml.put(0, PID, 100, gi=first)
    fake_nvml.put(0, PID + 1, 200, gi=second)
    whole = session.read_device(fake_nvml.uuid(0))
    fake_nvml.fail("nvmlDeviceGetComputeRunningProcesses_v3", Code.NO_PERMISSION, times=1)
    assert session.read_device(fake_nvml.uuid(0)) == whole
    assert session.read_device(fake_nvml.uuid(0)) == whole


@pytest.mark.failure_case(60)
def test_forbidden_whole_gpu_memory_does_not_hide_instance_readings(fake_nvml: FakeNvml) -> None:
    session, first, _ = mig_node(fake_nvml)
    session.read_device(fake_nvml.uuid(0))
    fake_nvml.fail("nvmlDeviceGetMemoryInfo_v2", Code.NO_PERMISSION)
    device = session.read_device(fake_nvml.uuid(0))
    assert device.total_bytes is None
    assert device.instances is not None
    assert device.instances[first].total_bytes is not None


def test_mig_devices_are_not_enumerated_again_without_a_change(fake_nvml: FakeNvml) -> None:
    told: list[str] = []
    fake_nvml.set_mode(0, True)
    fake_nvml.add_instance(0, 9, 4)
    session = Session.open(lambda name, *_: told.append(name))
    assert "nvmlDeviceGetMigDeviceHandleByIndex" in calls_of(session, fake_nvml.uuid(0), told)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in calls_of(session, fake_nvml.uuid(0), told)
    session.refresh()
    assert told.count("nvmlDeviceGetMigMode") == 0, "a refresh makes no call itself"
    assert "nvmlDeviceGetMigDeviceHandleByIndex" in calls_of(session, fake_nvml.uuid(0), told)


def test_recreated_instance_with_the_same_id_is_a_new_device(fake_nvml: FakeNvml) -> None:
    session, first, _ = mig_node(fake_nvml)
    former = fake_nvml.mig_uuid(0, first)
    session.read_device(fake_nvml.uuid(0))
    other = Session.open()
    other.destroy_compute(fake_nvml.uuid(0), first, 0)
    other.create_compute(fake_nvml.uuid(0), first)
    assert fake_nvml.mig_uuid(0, first) != former
    instances = session.read_device(fake_nvml.uuid(0)).instances
    assert instances is not None
    assert instances[first].uuid == fake_nvml.mig_uuid(0, first)


def test_an_instance_that_is_new_is_found_by_its_first_process(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    session = Session.open()
    assert session.read_device(fake_nvml.uuid(0)).instances == {}
    gi = fake_nvml.add_instance(0, 9, 4)
    fake_nvml.put(0, PID, 100, gi=gi)
    device = session.read_device(fake_nvml.uuid(0))
    assert device.instances is not None
    assert device.instances[gi].uuid == fake_nvml.mig_uuid(0, gi)


def test_rows_of_unknown_instances_cause_one_enumeration_of_mig_devices(fake_nvml: FakeNvml) -> None:
    told: list[str] = []
    fake_nvml.set_mode(0, True)
    fake_nvml.add_instance(0, 9, 4)
    session = Session.open(lambda name, *_: told.append(name))
    session.read_device(fake_nvml.uuid(0))
    fake_nvml.put_raw(0, [(PID, 100 * MIB, 12, 0)])
    assert "nvmlDeviceGetMigDeviceHandleByIndex" in calls_of(session, fake_nvml.uuid(0), told)
    assert "nvmlDeviceGetMigDeviceHandleByIndex" not in calls_of(session, fake_nvml.uuid(0), told)
    assert validate(session.read_device(fake_nvml.uuid(0))) is RejectReason.BAD_INSTANCE


def test_split_instance_is_identified_by_its_first_compute_instance(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 9, 4, cis=3)
    instances = Session.open().read_device(fake_nvml.uuid(0)).instances
    assert instances is not None
    assert instances.keys() == {gi}
    assert isinstance(instances[gi], MigInstance)
    assert instances[gi].uuid == fake_nvml.mig_uuid(0, gi, 0)
