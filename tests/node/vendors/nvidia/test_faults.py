"""Every NVML function that is called, failing with every code that there is: an error or a fault, never a wrong value.

One GPU has MIG on with a whole instance, one in pieces and one without anything in it; its neighbour has MIG off.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import pynvml
import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.process_list import Device
from gpushare_node.vendors.driver import Activation, DriverError, GpuInfo, Versions
from gpushare_node.vendors.nvidia.session import Session
from tests.support import scale
from tests.support.fake_nvml import FakeNvml

CODES = (*range(1, 31), 999, 4711) if scale.is_long else (1, 2, 3, 4, 6, 9, 10, 13, 15, 17, 18, 20, 999, 4711)
"""Every code, or those that the program treats in a way of their own, one that it does not, and one that does not exist."""
ABSENT = {3, 13}
OVER = {1, 9, 18}
CGROUP = "/sys/fs/cgroup/kubepods.slice/x"

READING = (
    "nvmlInitWithFlags",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetName",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetMemoryInfo",
    "nvmlDeviceGetComputeMode",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuFabricInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo",
    "nvmlGpuInstanceGetComputeInstances",
    "nvmlComputeInstanceGetInfo_v2",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetComputeRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetRunningProcessDetailList",
    "nvmlEventSetCreate",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
    "nvmlEventSetFree",
    "nvmlShutdown",
    "nvmlDeviceGetMemoryLimits_v1",
)
CHANGING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlDeviceCreateGpuInstance",
    "nvmlDeviceGetGpuInstanceById",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceGetComputeInstanceById",
    "nvmlComputeInstanceDestroy",
    "nvmlGpuInstanceDestroy",
    "nvmlDeviceSetComputeMode",
    "nvmlDeviceSetMemoryLimits_v1",
)
ONLY_INSTEAD_OF_ANOTHER = {
    "nvmlDeviceGetMemoryInfo": "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuInstanceProfileInfo": "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfo": "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlDeviceCreateGpuInstance": "nvmlDeviceCreateGpuInstanceWithPlacement",
}
"""What is called only where the driver lacks the other."""


@dataclass(frozen=True)
class Looks:
    """All that can be read, or the error in its place."""

    versions: Versions | int
    surveys: tuple[GpuInfo, ...] | int
    devices: tuple[Device | int, ...]
    limit: int | None
    xid: object

    def __iter__(self) -> Iterator[Any]:
        return (getattr(self, field.name) for field in fields(self))


def value_or_code(call: Any) -> Any:
    try:
        return call()
    except DriverError as problem:
        return -problem.code


def look(fake_nvml: FakeNvml) -> Looks | int:
    session = value_or_code(Session.open)
    if isinstance(session, int):
        return session
    uuids = [fake_nvml.uuid(gpu) for gpu in range(2)]
    found = Looks(
        versions=value_or_code(session.versions),
        surveys=value_or_code(session.survey),
        devices=tuple(value_or_code(lambda uuid=uuid: session.read_device(uuid)) for uuid in uuids),
        limit=value_or_code(lambda: session.memory_limit(uuids[1], CGROUP)),
        xid=value_or_code(lambda: session.next_xid(0)),
    )
    session.close()
    return found


@pytest.fixture(params=["580.95.05", "535.129.03"], ids=["new", "scrambling"])
def node(request: pytest.FixtureRequest, tmp_path: Any) -> FakeNvml:
    made = FakeNvml.make(tmp_path, ("a100-sxm4-40gb",) * 2, driver=request.param)
    made.offer_limits()
    made.load()
    made.set_mode(0, True)
    gi = made.add_instance(0, 9, 4)
    made.add_instance(0, 14, 0, cis=2)
    made.add_instance(0, 19, 3, cis=0)
    for kind in ("compute", "graphics", "mps"):
        made.put(0, 4_300_001, 100, gi=gi, kind=kind)
        made.put(1, 4_300_002, 100, kind=kind)
    return made


def is_survey_honest(found: GpuInfo, true: GpuInfo, code: int) -> bool:
    """A fault, or the truth; less than the truth only where the driver said that it has not got it."""
    if found.fault is not None:
        return found.index == true.index and found.uuid in (true.uuid, f"unknown-{true.index}")
    if code not in ABSENT | {2, 6}:
        return found == true
    mig = found.mig
    if mig is not None and true.mig is not None:
        known = {ci.uuid for one in true.mig.instances for ci in one.compute} | {None}
        told = {ci.uuid for one in mig.instances for ci in one.compute}
        if not told <= known or not set(mig.profiles) <= set(true.mig.profiles):
            return False
        # An instance with nothing in it is found by its profile alone: where the driver denies that, it cannot be seen.
        offered = {profile.id for profile in mig.profiles}
        visible = [instance for instance in true.mig.instances if instance.compute or instance.profile_id in offered]
        if list(map(bare, mig.instances)) != list(map(bare, visible)):
            return False
    return (
        (found.index, found.uuid, found.name) == (true.index, true.uuid, true.name)
        and all(getattr(found, name) in (None, getattr(true, name)) for name in ("pci_device_id", "pci_bus_id", "memory_mib"))
        and found.compute_mode in (None, true.compute_mode)
        and found.pids == true.pids
        and (mig is None or (true.mig is not None and (mig.current, mig.pending) == (true.mig.current, true.mig.pending)))
    )


def bare(instance: Any) -> Any:
    return replace(instance, compute=tuple(replace(ci, uuid=None) for ci in instance.compute))


def is_census_honest(found: Device | int, true: Device, code: int) -> bool:
    if isinstance(found, int):
        return True
    if found == true:
        return True
    assert found.rows is not None
    assert true.rows is not None
    kinds = {row.kind for row in found.rows}
    return (
        found.rows == tuple(row for row in true.rows if row.kind in kinds)
        and (len(kinds) == 3 or code in ABSENT)
        and found.total_bytes in (None, true.total_bytes)
        and found.used_bytes in (None, true.used_bytes)
        and (found.instances == true.instances or code in ABSENT | {2, 6})
    )


def test_the_functions_below_are_all_that_are_called(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    called = set()

    class Recorder:
        def __init__(self, library: Any) -> None:
            self.library = library

        def __getattr__(self, name: str) -> Any:
            called.add(name)
            return getattr(self.library, name)

    for driver in ("580.95.05", "535.129.03"):
        fake_nvml = FakeNvml.make(tmp_path / driver, ("a100-sxm4-40gb",) * 2, driver=driver)
        fake_nvml.offer_limits()
        for missing in (set(), set(ONLY_INSTEAD_OF_ANOTHER.values())):
            fake_nvml.miss(*missing)
            fake_nvml.load()
            monkeypatch.setattr(pynvml, "nvmlLib", Recorder(pynvml.nvmlLib))
            fake_nvml.set_mode(0, False)
            change(fake_nvml, Session.open())
            fake_nvml.set_mode(0, True)
            fake_nvml.add_instance(0, 9, 4)
            assert isinstance(look(fake_nvml), Looks)
    assert {name for name in called if name.startswith("nvml")} == {*READING, *CHANGING}


@pytest.mark.parametrize("function", scale.part(READING, 4))
def test_a_failing_function_makes_an_error_or_a_fault_and_never_a_wrong_value(node: FakeNvml, function: str) -> None:
    if function in ONLY_INSTEAD_OF_ANOTHER:
        node.fail(ONLY_INSTEAD_OF_ANOTHER[function], 13)
    true = look(node)
    assert isinstance(true, Looks)
    assert not any(isinstance(one, int) for one in (true.versions, true.surveys, *true.devices))
    for code in CODES:
        node.fail(function, code)
        found = look(node)
        node.heal()
        if function in ONLY_INSTEAD_OF_ANOTHER:
            node.fail(ONLY_INSTEAD_OF_ANOTHER[function], 13)
        if isinstance(found, int):
            assert (function, -found) == ("nvmlInitWithFlags", code)
            continue
        hold(found, true, code)
    if function not in {"nvmlInitWithFlags", "nvmlShutdown"}:
        assert look(node) == true, "what failed is forgotten"


def hold(found: Looks, true: Looks, code: int) -> None:
    assert not isinstance(true.versions, int)
    assert not isinstance(true.surveys, int)
    assert found.versions in (-code, true.versions) or found.versions == replace(true.versions, cuda=None), code
    if isinstance(found.surveys, int):
        assert -found.surveys == code
    else:
        for pair in zip(found.surveys, true.surveys, strict=True):
            assert is_survey_honest(*pair, code), (code, pair)
    for told, right in zip(found.devices, true.devices, strict=True):
        assert isinstance(right, Device)
        assert is_census_honest(told, right, code), (code, told, right)
    assert found.limit in (-code, true.limit)
    assert found.xid in (-code, None)


@pytest.mark.parametrize("code", [2, 3, 6, 13, 999])
def test_single_nvml_failure_gives_no_wrong_value(node: FakeNvml, code: int) -> None:
    true = look(node)
    assert isinstance(true, Looks)
    for function in READING:
        for after in scale.some(range(0, 24, 3) if "Instance" in function else range(3), 3):
            node.fail(function, code, times=1, after=after)
            found = look(node)
            node.heal()
            if not isinstance(found, int):
                hold(found, true, code)


@pytest.mark.parametrize("function", [name for name in READING if name.startswith(("nvmlDevice", "nvmlGpu", "nvmlCompute"))])
def test_nvml_failure_on_one_gpu_does_not_change_the_readings_of_the_other(node: FakeNvml, function: str) -> None:
    true = look(node)
    assert isinstance(true, Looks)
    assert not isinstance(true.surveys, int)
    for code in scale.some(sorted(set(CODES) - OVER), 2):
        node.fail(function, code, gpu=0)
        found = look(node)
        node.heal()
        assert isinstance(found, Looks)
        assert not isinstance(found.surveys, int)
        assert found.surveys[1] == true.surveys[1]
        assert found.devices[1] == true.devices[1]


def change(fake_nvml: FakeNvml, session: Session) -> None:
    """Everything that changes something, from MIG off to MIG off."""
    uuid = fake_nvml.uuid(0)
    session.reset_compute_mode(uuid)
    session.set_memory_limit(uuid, CGROUP, 1 << 30)
    session.set_memory_limit(uuid, CGROUP, None)
    assert session.set_mig(uuid, enabled=True) is Activation.ACTIVE
    session.close()
    session = Session.open()
    for start in (0, 4):
        created = value_or_code(lambda start=start: session.create_instance(uuid, profile_id=9, start=start, size=4))
        if created >= 0:
            session.create_compute(uuid, created)
            session.destroy_compute(uuid, created, 0)
            session.destroy_instance(uuid, created)
    session.set_mig(uuid, enabled=False)
    session.close()


STEPS = {
    "nvmlDeviceSetMigMode": "mig",
    "nvmlDeviceSetComputeMode": "mode",
    "nvmlDeviceSetMemoryLimits_v1": "limit",
    "nvmlDeviceCreateGpuInstanceWithPlacement": "create",
    "nvmlDeviceCreateGpuInstance": "create",
    "nvmlGpuInstanceGetInfo": "create",
    "nvmlDeviceGetGpuInstanceById": "fill",
    "nvmlGpuInstanceCreateComputeInstance": "fill",
    "nvmlDeviceGetGpuInstanceProfileInfoV": "fill",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV": "fill",
    "nvmlGpuInstanceGetComputeInstanceById": "empty",
    "nvmlComputeInstanceDestroy": "empty",
    "nvmlGpuInstanceDestroy": "destroy",
}


@pytest.mark.parametrize("function", STEPS)
def test_failed_change_raises_an_error_and_leaves_no_partial_instance(node: FakeNvml, function: str) -> None:
    whole = node.instances(0)
    empty = next(one[0] for one in whole if one[4] == 0)
    cut = next(one[0] for one in whole if one[4] == 2)
    steps: dict[str, Any] = {
        "mig": lambda: Session.open().set_mig(node.uuid(1), enabled=True),
        "mode": lambda: Session.open().reset_compute_mode(node.uuid(1)),
        "limit": lambda: Session.open().set_memory_limit(node.uuid(1), CGROUP, 1 << 30),
        "create": lambda: Session.open().create_instance(node.uuid(0), profile_id=19, start=2, size=1),
        "fill": lambda: Session.open().create_compute(node.uuid(0), empty),
        "empty": lambda: Session.open().destroy_compute(node.uuid(0), cut, 1),
        "destroy": lambda: Session.open().destroy_instance(node.uuid(0), empty),
    }
    gone_is_well = function in {"nvmlGpuInstanceGetComputeInstanceById", "nvmlComputeInstanceDestroy", "nvmlGpuInstanceDestroy"}
    for code in CODES:
        if function == "nvmlDeviceCreateGpuInstance":
            node.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 13)
        node.fail(function, code)
        found = value_or_code(steps[STEPS[function]])
        node.heal()
        if code == 13 and found not in (-13, None):
            assert function == "nvmlDeviceCreateGpuInstanceWithPlacement", "the one change that has another way"
            Session.open().destroy_instance(node.uuid(0), found)
        elif function.endswith("ProfileInfoV"):
            assert found in (-code, -6, None)
        else:
            assert found == (None if code == 6 and gone_is_well else -code)
        if found is None and STEPS[function] == "fill":
            Session.open().destroy_compute(node.uuid(0), empty, 0)
        assert node.instances(0) == whole
        assert node.mode(1) == (False, False)
        assert node.limits(1) == {}
