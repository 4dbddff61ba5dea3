"""Each GPU at its own pace: one that answers slowly, or with garbage, neither delays nor hides the others."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.core.clock import SystemClock
from gpushare_node.guard.process_list import Device
from gpushare_node.partition.state import FaultKind
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.node.enforce.enforcement import EnforcementFixture, await_end, lives, load_two_gpus
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM, ProcessPool
from tests.support.waiting import wait_for

LIST = "nvmlDeviceGetComputeRunningProcesses_v3"
SLOW_SECONDS = 0.2


@pytest.fixture
def watched(fake_nvml: FakeNvml) -> Iterator[BoundedDriver]:
    made = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=5)
    yield made
    fake_nvml.heal()
    made.close()


@pytest.mark.failure_case(48)
def test_slow_gpu_is_pending_until_its_answer_has_come_and_the_others_are_read(
    watched: BoundedDriver, fake_nvml: FakeNvml
) -> None:
    uuids = [fake_nvml.uuid(gpu) for gpu in range(4)]
    fake_nvml.delay(LIST, SLOW_SECONDS, gpu=2)
    assert not any(device.is_pending for device in watched.read_devices(uuids).values()), "the first answer is waited for"
    seen: list[Device] = []

    def answers_again() -> bool:
        devices = watched.read_devices(uuids)
        assert [uuid for uuid, device in devices.items() if device.rows is None] in ([], [uuids[2]])
        seen.append(devices[uuids[2]])
        return len(seen) > 3 and not devices[uuids[2]].is_pending

    wait_for(answers_again)
    assert sum(device.is_pending for device in seen) > 1
    assert {device.rows is None for device in seen if device.is_pending} == {True}
    assert (watched.troubles(), watched.hung_seconds()) == ({}, {})


def test_gpu_that_is_fast_again_is_waited_for_again(watched: BoundedDriver, fake_nvml: FakeNvml) -> None:
    uuids = [fake_nvml.uuid(gpu) for gpu in range(2)]
    fake_nvml.delay(LIST, SLOW_SECONDS, gpu=1)
    watched.read_devices(uuids)
    fake_nvml.heal()
    wait_for(lambda: not any(watched.read_devices(uuids)[uuids[1]].is_pending for _ in range(5)))


class Odd:
    """A session of which one GPU gives what no driver gives."""

    def __init__(self, session: Session, uuid: str, read: Callable[[], object]) -> None:
        self._session, self._uuid, self._read = session, uuid, read

    def __getattr__(self, name: str) -> object:
        return getattr(self._session, name)

    def read_device(self, uuid: str) -> object:
        return self._read() if uuid == self._uuid else self._session.read_device(uuid)


def failing(problem: BaseException) -> Callable[[], object]:
    def read() -> object:
        raise problem

    return read


@pytest.mark.parametrize(
    "read",
    [
        failing(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")),
        failing(ValueError("NULL pointer access")),
        failing(MemoryError()),
        failing(OverflowError("int too large")),
        lambda: None,
    ],
    ids=["text", "pointer", "memory", "number", "nothing"],
)
def test_garbage_of_one_gpu_is_said_and_caps_on_the_other_are_enforced(
    tmp_path: Path, process_pool: ProcessPool, read: Callable[[], object]
) -> None:
    with load_two_gpus(tmp_path) as nvml:
        folder = tmp_path / "node"
        folder.mkdir()
        node = EnforcementFixture(
            folder, nvml, process_pool, open_driver=lambda observe: Odd(Session.open(observe), nvml.uuid(1), read)
        )
        node.admit(1, "greedy")
        pid = node.begin(1, 30000)
        node.run(20)
        assert not lives(pid)
        reason = node.enforcer.reason()
        assert reason is not None
        assert reason[0] is ConditionReason.GPU_UNREADABLE
        assert nvml.uuid(1) in reason[1]


def test_garbage_in_the_survey_of_one_gpu_is_a_fault_of_that_gpu(fake_nvml: FakeNvml, monkeypatch: pytest.MonkeyPatch) -> None:
    survey = Session.survey_gpu

    def odd(session: Session, index: int) -> GpuInfo:
        return survey(session, index) if index else failing(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "x"))()  # type: ignore[return-value]

    monkeypatch.setattr(Session, "survey_gpu", odd)
    watched = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=5)
    surveyed = watched.survey(wait_seconds=5)
    watched.close()
    assert surveyed is not None
    assert [gpu.index for gpu in surveyed[1] if gpu.fault is not None and gpu.fault.kind is FaultKind.UNREADABLE] == [0]


@pytest.mark.failure_case(86)
@pytest.mark.parametrize("every", [1, 3, 13])
def test_offender_on_a_slow_gpu_is_ended_in_the_time_of_a_fast_one(
    tmp_path: Path, process_pool: ProcessPool, every: int
) -> None:
    """Of a GPU of which there is news only so often, the time between two samples counts whole, and nothing is unknown."""
    with load_two_gpus(tmp_path) as nvml:
        folder = tmp_path / "node"
        folder.mkdir()
        node = EnforcementFixture(folder, nvml, process_pool, enforcement={"graceSeconds": 10})
        node.admit(1, "greedy")
        pid = node.begin(1, 30000, IGNORING_SIGTERM)
        read, asked = node.driver.read_devices, iter(range(1 << 30))

        def seldom(uuids: tuple[str, ...]) -> dict[str, Device]:
            found = dict(read(uuids))
            if next(asked) % every:
                found[nvml.uuid(0)] = replace(found[nvml.uuid(0)], rows=None, is_pending=True)
            return found

        node.driver.read_devices = seldom  # type: ignore[method-assign, assignment]
        began = node.clock.time
        while node.told.reasons("greedy").count("GPUProcessKilled") < 2:
            node.run(1)
            assert node.enforcer.reason() is None
            assert node.metric("container_gpu_memory_used_bytes{")
        assert node.clock.time - began <= 13 + 5 + 2 * every + 1
        await_end(pid)
