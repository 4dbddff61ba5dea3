"""The watched driver: a hang, a lost session or a refused open never reaches the program as anything but missing rows."""

import sys
import threading
import time
from collections.abc import Callable, Iterator

import pynvml
import pytest

from gpushare_node.core.clock import SystemClock
from gpushare_node.guard.process_list import ProcessEntry
from gpushare_node.vendors.bounded_driver import NODE, BoundedDriver
from gpushare_node.vendors.driver import Code, Driver, DriverError, Xid
from gpushare_node.vendors.nvidia.session import Session
from tests.support.fake_nvml import FakeNvml
from tests.support.waiting import wait_for

PID = 4_300_001
LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
DEADLINE = 1.0
"""So much longer than any answer takes that a busy machine is not taken for a hung driver."""


class Hours(SystemClock):
    """Real time, and what is added to it."""

    added = 0.0

    def now(self) -> float:
        return super().now() + self.added


@pytest.fixture
def clock() -> Hours:
    return Hours()


@pytest.fixture
def uuids(fake_nvml: FakeNvml) -> list[str]:
    for gpu in range(8):
        fake_nvml.put(gpu, PID + gpu, 100)
    return [fake_nvml.uuid(gpu) for gpu in range(8)]


@pytest.fixture
def watched(fake_nvml: FakeNvml, clock: Hours) -> Iterator[BoundedDriver]:
    made = BoundedDriver(Session.open, clock=clock, deadline_seconds=DEADLINE)
    yield made
    fake_nvml.heal()
    made.close()


def rowless(watched: BoundedDriver, uuids: list[str]) -> set[int]:
    devices = watched.read_devices(uuids)
    assert list(devices) == uuids
    return {uuids.index(uuid) for uuid, device in devices.items() if device.rows is None}


def threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name == "driver"}


def test_bounded_driver_returns_the_drivers_readings(watched: BoundedDriver, uuids: list[str]) -> None:
    session = Session.open()
    assert watched.read_devices(uuids) == {uuid: session.read_device(uuid) for uuid in uuids}
    assert (watched.troubles(), watched.hung_seconds(), watched.unreliable()) == ({}, {}, frozenset())


@pytest.mark.failure_case(48)
def test_hanging_gpu_does_not_block_others_and_is_not_called_again(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours, given_up: list[float]
) -> None:
    whole = watched.read_devices(uuids)
    fake_nvml.delay(LIST, 600, gpu=3)
    assert rowless(watched, uuids) == {3}
    assert watched.troubles()[uuids[3]].code == Code.TIMEOUT
    given_up.clear()
    devices = watched.read_devices(uuids)
    assert given_up == [], "it is waited for once"
    assert {uuid for uuid in uuids if devices[uuid] != whole[uuid]} == {uuids[3]}
    assert devices[uuids[3]].places() == (uuids[3],)
    clock.added = 60
    assert watched.hung_seconds().keys() == {uuids[3]}
    assert watched.hung_seconds()[uuids[3]] > 60
    fake_nvml.heal()
    wait_for(lambda: not watched.hung_seconds())
    assert watched.read_devices(uuids) == whole


@pytest.mark.failure_case(48)
def test_last_gpu_is_read_while_all_others_hang(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str]) -> None:
    before = threads()
    watched.read_devices(uuids)
    for gpu in range(7):
        fake_nvml.delay(LIST, 600, gpu=gpu)
    assert rowless(watched, uuids) == set(range(7))
    assert rowless(watched, uuids) == set(range(7))
    assert len(threads() - before) == 8, "one for each that hangs, and one"
    fake_nvml.heal()
    wait_for(lambda: not watched.hung_seconds())
    assert rowless(watched, uuids) == set()
    assert len(threads() - before) == 8


@pytest.mark.failure_case(48)
def test_session_with_a_hanging_call_is_not_closed(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours
) -> None:
    watched.read_devices(uuids)
    fake_nvml.delay(LIST, 600, gpu=3)
    fake_nvml.fail("nvmlDeviceGetMemoryInfo_v2", Code.DRIVER_NOT_LOADED, gpu=0)
    assert rowless(watched, uuids) == {0, 3}
    former = watched._driver
    wait_for(lambda: not watched._listener.is_busy)
    clock.added = 100
    assert rowless(watched, uuids) == set(range(8))
    assert watched._driver is former
    fake_nvml.heal()
    wait_for(lambda: not watched.hung_seconds())
    watched.read_devices(uuids)
    assert watched._driver is not former
    clock.added = 200
    assert rowless(watched, uuids) == set()


def test_a_slow_gpu_is_not_a_hung_one(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str]) -> None:
    fake_nvml.delay(LIST, DEADLINE / (len(uuids) - 1))
    assert rowless(watched, uuids) == set(), "together they take longer than the deadline of one"


@pytest.mark.failure_case(48)
def test_a_hung_call_for_the_whole_node_is_reported_and_not_repeated(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours
) -> None:
    assert watched.ask("versions", lambda driver: driver.versions()).driver == "580.95.05"
    watched.read_devices(uuids)
    fake_nvml.delay("nvmlSystemGetDriverVersion", 600)
    for _ in range(2):
        with pytest.raises(DriverError) as caught:
            watched.ask("versions", lambda driver: driver.versions())
        assert (caught.value.call, caught.value.code) == ("versions", Code.TIMEOUT)
    clock.added = 30
    assert watched.hung_seconds()[NODE] > 30
    assert rowless(watched, uuids) == set()


@pytest.mark.failure_case(48)
def test_hung_session_open_is_used_when_it_returns(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours
) -> None:
    fake_nvml.delay("nvmlInitWithFlags", 600)
    assert rowless(watched, uuids) == set(range(8))
    clock.added = 10
    assert NODE in watched.hung_seconds()
    fake_nvml.heal()
    wait_for(lambda: not watched.hung_seconds())
    assert rowless(watched, uuids) == set()


@pytest.mark.failure_case(50)
def test_lost_gpu_has_no_rows_until_it_recovers(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str]) -> None:
    whole = watched.read_devices(uuids)
    fake_nvml.lose(5)
    assert rowless(watched, uuids) == {5}
    assert watched.troubles()[uuids[5]].code == Code.GPU_IS_LOST
    fake_nvml.find(5)
    assert watched.read_devices(uuids) == whole


def test_gpu_without_rows_keeps_its_last_seen_instances(watched: BoundedDriver, fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 9, 4)
    uuid = fake_nvml.uuid(0)
    before = watched.read_devices([uuid])[uuid]
    fake_nvml.lose(0)
    after = watched.read_devices([uuid])[uuid]
    assert (after.rows, after.used_bytes) == (None, None)
    assert after.places() == before.places() == (fake_nvml.mig_uuid(0, gi),)


@pytest.mark.failure_case(22)
@pytest.mark.parametrize("code", [Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH, Code.UNINITIALIZED])
def test_invalid_session_is_reopened_with_growing_backoff(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours, code: Code
) -> None:
    whole = watched.read_devices(uuids)
    fake_nvml.unload(code)
    fake_nvml.fail(LIST, code)
    assert rowless(watched, uuids) == set(range(8))
    waits = []
    for _ in range(7):
        since, problem = clock.now(), watched.troubles()[uuids[0]]
        while watched._next_open <= since:
            clock.added += 0.5
            watched.read_devices(uuids)
        waits.append(round(watched._next_open - clock.now()))
        assert problem.code == code
        assert rowless(watched, uuids) == set(range(8))
        clock.added += watched._next_open - clock.now() + 0.001
    assert waits[:5] == sorted(waits[:5])
    assert waits[-1] == 30
    fake_nvml.reload()
    fake_nvml.heal()
    clock.added += 31
    assert watched.read_devices(uuids) == whole


@pytest.mark.failure_case(21)
def test_driver_that_loads_later_is_found(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours) -> None:
    fake_nvml.unload()
    assert rowless(watched, uuids) == set(range(8))
    with pytest.raises(DriverError) as caught:
        watched.ask("survey", lambda driver: driver.survey())
    assert (caught.value.call, caught.value.code) == ("nvmlInit", Code.DRIVER_NOT_LOADED)
    assert (watched.unreliable(), watched.xids()) == (frozenset(), ())
    watched.refresh()
    fake_nvml.reload()
    assert rowless(watched, uuids) == set(range(8)), "not before its time"
    clock.added = 1.1
    assert rowless(watched, uuids) == set()


@pytest.mark.failure_case(13)
def test_externally_changed_mig_mode_is_detected_by_a_new_session(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours
) -> None:
    watched.read_devices(uuids)
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 9, 4)
    watched.refresh()
    assert rowless(watched, uuids) == {0}
    wait_for(lambda: watched._listener.is_busy is False)
    watched.read_devices(uuids)
    clock.added = 2
    assert watched.read_devices(uuids)[uuids[0]].places() == (fake_nvml.mig_uuid(0, gi),)


def test_failing_gpu_does_not_reopen_the_session_repeatedly(
    watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str], clock: Hours
) -> None:
    fake_nvml.fail(LIST, Code.INVALID_ARGUMENT, gpu=2)
    assert rowless(watched, uuids) == {2}
    wait_for(lambda: watched._listener.is_busy is False)
    watched.read_devices(uuids)
    for _ in range(20):
        clock.added += 1.5
        assert rowless(watched, uuids) == {2}


def test_xids_between_two_censuses_are_reported(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str]) -> None:
    watched.read_devices(uuids)
    watched.read_devices(uuids)
    session = Session.open()
    assert session.next_xid(0) is None
    wait_for(lambda: watched._driver is not None and getattr(watched._driver, "_events", None) is not None)
    heard: list[Xid] = []
    fake_nvml.xid(1, 45)
    fake_nvml.xid(6, 79)
    fake_nvml.lose(6)

    def listen() -> bool:
        watched.read_devices(uuids)
        heard.extend(watched.xids())
        return len(heard) == 2

    wait_for(listen)
    assert heard == [Xid(uuid=uuids[1], xid=45), Xid(uuid=uuids[6], xid=79)]
    assert watched.xids() == ()
    assert session.next_xid(0) == Xid(uuid=uuids[1], xid=45)


def test_driver_without_event_support_is_asked_for_events_once(fake_nvml: FakeNvml, uuids: list[str], clock: Hours) -> None:
    asked: list[str] = []
    fake_nvml.fail("nvmlDeviceRegisterEvents", Code.NOT_SUPPORTED)
    watched = BoundedDriver(lambda: Session.open(lambda name, *_: asked.append(name)), clock=clock, deadline_seconds=DEADLINE)
    watched.read_devices(uuids)
    wait_for(lambda: watched._pending_xids is not None and watched._pending_xids.wait())
    for _ in range(3):
        watched.read_devices(uuids)
    watched.close()
    assert asked.count("nvmlEventSetCreate") == 1


def test_xids_are_received_from_gpus_that_support_events(fake_nvml: FakeNvml, uuids: list[str]) -> None:
    fake_nvml.fail("nvmlDeviceRegisterEvents", Code.NOT_SUPPORTED, gpu=0)
    session = Session.open()
    assert session.next_xid(0) is None
    fake_nvml.xid(0, 31)
    fake_nvml.xid(1, 45)
    assert session.next_xid(0) == Xid(uuid=uuids[1], xid=45)


def test_close_ends_the_threads_and_the_session(fake_nvml: FakeNvml, clock: Hours, uuids: list[str]) -> None:
    before = set(threading.enumerate())
    ended: list[Driver] = []

    class Ending(Session):
        def close(self) -> None:
            super().close()
            ended.append(self)

    watched = BoundedDriver(Ending.open, clock=clock, deadline_seconds=2)
    watched.read_devices(uuids)
    watched.close()
    assert len(ended) == 1
    wait_for(lambda: set(threading.enumerate()) <= before)


@pytest.mark.failure_case(48)
def test_close_returns_during_a_hung_call_and_keeps_the_session_open(
    fake_nvml: FakeNvml, clock: Hours, uuids: list[str]
) -> None:
    watched = BoundedDriver(Session.open, clock=clock, deadline_seconds=DEADLINE)
    fake_nvml.delay(LIST, 600, gpu=0)
    assert rowless(watched, uuids) == {0}
    watched.close()
    assert watched._driver is not None
    fake_nvml.heal()


def test_rows_are_current(watched: BoundedDriver, fake_nvml: FakeNvml, uuids: list[str]) -> None:
    watched.read_devices(uuids)
    fake_nvml.put(0, PID, 777)
    assert watched.read_devices(uuids)[uuids[0]].rows == (ProcessEntry(pid=PID, used_bytes=777 << 20),)


@pytest.mark.failure_case(72)
def test_census_is_much_cheaper_than_pynvmls_lists_and_leaks_nothing(watched: BoundedDriver, fake_nvml: FakeNvml) -> None:
    uuids = [fake_nvml.uuid(gpu) for gpu in range(8)]
    # So many rows that waking the driver's thread, which costs more on an idle machine, does not count.
    for gpu in range(8):
        fake_nvml.put_raw(gpu, [(PID + number, (100 + number) << 20, 0xFFFFFFFF, 0xFFFFFFFF) for number in range(240)])
    watched.read_devices(uuids)
    handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in uuids]

    def ask_pynvml() -> None:
        for handle in handles:
            pynvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
            pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3(handle)
            pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3(handle)
            pynvml.nvmlDeviceGetMemoryInfo(handle, pynvml.nvmlMemory_v2)

    ours, theirs = cpu_seconds(lambda: watched.read_devices(uuids), ask_pynvml)
    assert ours < theirs / 2
    blocks = sys.getallocatedblocks()
    for _ in range(300):
        watched.read_devices(uuids)
    assert sys.getallocatedblocks() - blocks < 300


def cpu_seconds(*jobs: Callable[[], object]) -> list[float]:
    """The best of several rounds for each: what else runs here takes time away, and from jobs in turn alike."""

    def one(do: Callable[[], object]) -> float:
        began = time.process_time()
        for _ in range(5):
            do()
        return time.process_time() - began

    rounds = [[one(do) for do in jobs] for _ in range(30)]
    return [min(column) for column in zip(*rounds, strict=True)]
