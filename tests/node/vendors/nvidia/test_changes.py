"""What changes a GPU: MIG mode, instances, compute mode, limits; exactly what was asked for, or a clean error."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.vendors.driver import Activation, Code, ComputeInstance, DriverError, GpuInstance
from gpushare_node.vendors.nvidia.session import Session
from tests.support.fake_nvml import FakeNvml

GIB = 1 << 30
CGROUP = "/sys/fs/cgroup/kubepods.slice/kubepods-podx.slice/cri-containerd-y.scope"


def refusal(call: Callable[[], object]) -> tuple[str, int]:
    with pytest.raises(DriverError) as caught:
        call()
    return caught.value.call, caught.value.code


def instances(session: Session, gpu: int = 0) -> tuple[GpuInstance, ...]:
    mig = session.survey()[gpu].mig
    assert mig is not None
    return mig.instances


@pytest.fixture
def session(fake_nvml: FakeNvml) -> Session:
    """With MIG on on GPU 0."""
    fake_nvml.set_mode(0, True)
    return Session.open()


def test_mig_is_enabled_and_disabled(fake_nvml: FakeNvml) -> None:
    uuid = fake_nvml.uuid(2)
    session = Session.open()
    assert session.set_mig(uuid, enabled=True) is Activation.ACTIVE
    session.close()
    assert fake_nvml.mode(2) == (True, True)
    assert Session.open().set_mig(uuid, enabled=False) is Activation.ACTIVE
    assert fake_nvml.mode(2) == (False, False)


@pytest.mark.failure_case(9, 10)
@pytest.mark.parametrize("answer", [Activation.IN_USE, Activation.RESET_REQUIRED])
def test_failed_mig_activation_is_returned_and_stays_pending(fake_nvml: FakeNvml, answer: Activation) -> None:
    fake_nvml.reset_blocked(0, int(answer))
    session = Session.open()
    assert session.set_mig(fake_nvml.uuid(0), enabled=True) is answer
    mig = session.survey()[0].mig
    assert mig is not None
    assert (mig.current, mig.pending) == (False, True)


def test_unexpected_activation_status_is_an_error(fake_nvml: FakeNvml) -> None:
    fake_nvml.reset_blocked(0, int(Code.UNKNOWN))
    assert refusal(lambda: Session.open().set_mig(fake_nvml.uuid(0), enabled=True)) == ("nvmlDeviceSetMigMode", Code.UNKNOWN)


@pytest.mark.failure_case(12)
def test_a_mode_change_without_permission_is_reported_by_its_code(fake_nvml: FakeNvml) -> None:
    fake_nvml.fail("nvmlDeviceSetMigMode", Code.NO_PERMISSION)
    found = refusal(lambda: Session.open().set_mig(fake_nvml.uuid(0), enabled=True))
    assert found == ("nvmlDeviceSetMigMode", Code.NO_PERMISSION)


@pytest.mark.failure_case(13)
def test_handles_are_reopened_after_a_mode_switch(fake_nvml: FakeNvml) -> None:
    uuid = fake_nvml.uuid(0)
    session = Session.open()
    assert session.read_device(uuid).instances is None
    session.set_mig(uuid, enabled=True)
    session.close()
    session = Session.open()
    gi = session.create_instance(uuid, profile_id=9, start=4, size=4)
    session.create_compute(uuid, gi)
    assert session.read_device(uuid).places() == (fake_nvml.mig_uuid(0, gi),)


def test_instance_is_created_at_the_requested_placement_with_compute(session: Session, fake_nvml: FakeNvml) -> None:
    uuid = fake_nvml.uuid(0)
    first = session.create_instance(uuid, profile_id=9, start=4, size=4)
    session.create_compute(uuid, first)
    second = session.create_instance(uuid, profile_id=15, start=2, size=2)
    session.create_compute(uuid, second)
    assert instances(session) == tuple(
        GpuInstance(
            gi_id=gi,
            profile_id=profile,
            start=start,
            size=size,
            compute=(ComputeInstance(ci_id=0, is_whole=True, uuid=fake_nvml.mig_uuid(0, gi)),),
        )
        for gi, profile, start, size in ((first, 9, 4, 4), (second, 15, 2, 2))
    )


@pytest.mark.parametrize(
    ("profile_id", "start", "code"),
    [(9, 0, Code.INSUFFICIENT_RESOURCES), (9, 1, Code.INVALID_ARGUMENT), (4711, 0, None)],
)
def test_occupied_or_nonexistent_placement_is_refused(
    session: Session, fake_nvml: FakeNvml, profile_id: int, start: int, code: Code | None
) -> None:
    fake_nvml.add_instance(0, 19, 0)
    before = fake_nvml.instances(0)
    call, found = refusal(lambda: session.create_instance(fake_nvml.uuid(0), profile_id=profile_id, start=start, size=4))
    assert call == "nvmlDeviceCreateGpuInstanceWithPlacement"
    assert code in (None, found)
    assert fake_nvml.instances(0) == before


@pytest.mark.failure_case(28)
def test_without_placement_support_a_correctly_placed_instance_is_kept(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.miss("nvmlDeviceCreateGpuInstanceWithPlacement")
    place = chosen(session, fake_nvml)
    gi = session.create_instance(fake_nvml.uuid(0), profile_id=9, start=place, size=4)
    assert [(instance[0], instance[1], instance[2]) for instance in fake_nvml.instances(0)] == [(gi, 9, place)]


@pytest.mark.failure_case(28)
def test_without_placement_support_a_misplaced_instance_is_destroyed(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.miss("nvmlDeviceCreateGpuInstanceWithPlacement")
    wrong = 4 - chosen(session, fake_nvml)
    with pytest.raises(DriverError) as caught:
        session.create_instance(fake_nvml.uuid(0), profile_id=9, start=wrong, size=4)
    assert caught.value.call == "nvmlDeviceCreateGpuInstanceWithPlacement"
    assert fake_nvml.instances(0) == []


def chosen(session: Session, fake_nvml: FakeNvml) -> int:
    """Where the driver puts a 3g.20gb on the empty card."""
    for start in (0, 4):
        try:
            gi = session.create_instance(fake_nvml.uuid(0), profile_id=9, start=start, size=4)
        except DriverError:
            continue
        session.destroy_instance(fake_nvml.uuid(0), gi)
        return start
    raise AssertionError("the driver puts it nowhere")


@pytest.mark.failure_case(15)
def test_instance_whose_id_cannot_be_read_is_destroyed(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.fail("nvmlGpuInstanceGetInfo", Code.UNKNOWN, times=1)
    call, _ = refusal(lambda: session.create_instance(fake_nvml.uuid(0), profile_id=9, start=0, size=4))
    assert call == "nvmlGpuInstanceGetInfo"
    assert fake_nvml.instances(0) == []


def test_an_instance_of_unknown_size_gets_no_compute_instance(session: Session, fake_nvml: FakeNvml) -> None:
    gi = session.create_instance(fake_nvml.uuid(0), profile_id=9, start=0, size=4)
    fake_nvml.fail("nvmlGpuInstanceGetComputeInstanceProfileInfoV", Code.NOT_SUPPORTED)
    call, code = refusal(lambda: session.create_compute(fake_nvml.uuid(0), gi))
    assert (call, code) == ("nvmlGpuInstanceGetComputeInstanceProfileInfo", Code.NOT_FOUND)
    assert fake_nvml.instances(0)[0][4] == 0


@pytest.mark.failure_case(18)
def test_compute_instances_are_destroyed_before_their_gpu_instance(session: Session, fake_nvml: FakeNvml) -> None:
    gi = fake_nvml.add_instance(0, 9, 4, cis=3)
    uuid = fake_nvml.uuid(0)
    assert refusal(lambda: session.destroy_instance(uuid, gi)) == ("nvmlGpuInstanceDestroy", Code.IN_USE)
    for compute_instance in instances(session)[0].compute:
        session.destroy_compute(uuid, gi, compute_instance.ci_id)
    session.destroy_instance(uuid, gi)
    assert fake_nvml.instances(0) == []


def test_destroying_a_missing_instance_succeeds(session: Session, fake_nvml: FakeNvml) -> None:
    gi = fake_nvml.add_instance(0, 9, 4, cis=0)
    session.destroy_compute(fake_nvml.uuid(0), gi, 0)
    session.destroy_compute(fake_nvml.uuid(0), 7, 0)
    session.destroy_instance(fake_nvml.uuid(0), 7)
    assert [instance[0] for instance in fake_nvml.instances(0)] == [gi]


@pytest.mark.failure_case(8)
def test_an_instance_in_use_is_not_destroyed(session: Session, fake_nvml: FakeNvml) -> None:
    gi = fake_nvml.add_instance(0, 9, 4)
    fake_nvml.put(0, 4_300_001, 100, gi=gi)
    assert refusal(lambda: session.destroy_compute(fake_nvml.uuid(0), gi, 0)) == ("nvmlComputeInstanceDestroy", Code.IN_USE)


def test_compute_mode_left_by_mps_is_reset(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_compute_mode(1, 3)
    Session.open().reset_compute_mode(fake_nvml.uuid(1))
    assert fake_nvml.compute_mode(1) == 0


def test_changes_on_a_gpu_that_is_not_there_are_refused(fake_nvml: FakeNvml) -> None:
    assert refusal(lambda: Session.open().reset_compute_mode("GPU-none")) == ("nvmlDeviceGetHandleByUUID", Code.NOT_FOUND)
    assert fake_nvml.calls() == []


def test_driver_without_memory_limit_support_is_detected(fake_nvml: FakeNvml) -> None:
    session = Session.open()
    assert not session.has_memory_limits()
    assert refusal(lambda: session.set_memory_limit(fake_nvml.uuid(0), CGROUP, GIB))[1] == Code.FUNCTION_NOT_FOUND
    assert refusal(lambda: session.memory_limit(fake_nvml.uuid(0), CGROUP))[1] == Code.FUNCTION_NOT_FOUND


def test_memory_limits_are_set_read_and_lifted(tmp_path: Path) -> None:
    fake_nvml = FakeNvml.make(tmp_path)
    fake_nvml.offer_limits()
    fake_nvml.load()
    session = Session.open()
    uuid = fake_nvml.uuid(0)
    assert session.has_memory_limits()
    assert session.memory_limit(uuid, CGROUP) is None
    session.set_memory_limit(uuid, CGROUP, 5 * GIB)
    assert session.memory_limit(uuid, CGROUP) == fake_nvml.limits(0)[CGROUP] == 5 * GIB
    assert fake_nvml._state.gpus[0].limits[0].soft_bytes == 0, "a cap guarantees nothing"
    session.set_memory_limit(uuid, CGROUP, None)
    assert session.memory_limit(uuid, CGROUP) is None
    session.close()
    fake_nvml.set_mode(1, True)
    assert Session.open().memory_limit(fake_nvml.uuid(1), CGROUP) is None
