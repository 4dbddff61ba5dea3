"""The survey: what a plan is made from, for every card of the catalogue, and which GPU has which fault."""

from pathlib import Path

import pytest

from gpushare_node.partition.state import FaultKind, Placement
from gpushare_node.vendors.driver import Code, ComputeMode, DriverError, GpuInfo, Versions
from gpushare_node.vendors.nvidia.session import Session
from tests.support.fake_nvml import FakeNvml

MIG_CARDS = ("a100-sxm4-40gb", "a100-sxm4-80gb", "a30", "h100-sxm5-80gb", "b200-180gb", "rtx-pro-6000-server")


@pytest.fixture
def session(fake_nvml: FakeNvml) -> Session:
    return Session.open()


def node(folder: Path, *cards: str, driver: str = "580.95.05") -> FakeNvml:
    made = FakeNvml.make(folder, cards, driver=driver)
    made.load()
    return made


def names(survey: GpuInfo) -> list[str | None]:
    assert survey.mig is not None
    return [profile.name for profile in survey.mig.profiles]


def test_versions_are_reported_in_the_usual_notation(session: Session) -> None:
    assert session.versions() == Versions(driver="580.95.05", nvml="13.580.95.05", cuda="13.0")


def test_idle_gpu_is_reported_with_all_fields(session: Session, fake_nvml: FakeNvml) -> None:
    found = session.survey()
    assert [one.index for one in found] == list(range(8))
    first = found[0]
    assert (first.uuid, first.name, first.fault) == (fake_nvml.uuid(0), "NVIDIA A100-SXM4-40GB", None)
    assert first.pci_device_id == "0x20B010DE"
    assert (first.pci_bus_id, first.compute_mode, first.pids) == ("00000000:07:00.0", ComputeMode.DEFAULT, ())
    assert first.memory_mib is not None
    assert 40_000 < first.memory_mib <= 40_960


@pytest.mark.failure_case(1)
def test_card_without_mig_has_no_mig_info(tmp_path: Path) -> None:
    node(tmp_path, "l4", "a100-sxm4-40gb")
    first, second = Session.open().survey()
    assert first.mig is None
    assert first.fault is None
    assert second.mig is not None


def test_profiles_have_the_hardwares_ids_and_the_policies_names(session: Session) -> None:
    mig = session.survey()[0].mig
    assert mig is not None
    assert {profile.name: profile.id for profile in mig.profiles} == {
        "1g.5gb": 19,
        "1g.5gb+me": 20,
        "1g.10gb": 15,
        "2g.10gb": 14,
        "3g.20gb": 9,
        "4g.20gb": 5,
        "7g.40gb": 0,
    }
    places = {profile.name: profile.placements for profile in mig.profiles}
    assert places["3g.20gb"] == (Placement(start=0, size=4), Placement(start=4, size=4))


@pytest.mark.parametrize("card", MIG_CARDS)
def test_profile_names_are_derived_if_the_driver_has_none(card: str, tmp_path: Path) -> None:
    fake_nvml = node(tmp_path, card)
    named = Session.open().survey()[0]
    fake_nvml.miss("nvmlDeviceGetGpuInstanceProfileInfoV", "nvmlGpuInstanceGetComputeInstanceProfileInfoV")
    assert Session.open().survey()[0] == named
    assert None not in names(named)


@pytest.mark.failure_case(23)
def test_places_come_from_the_list_and_not_from_the_drivers_count(tmp_path: Path) -> None:
    fake_nvml = node(tmp_path, "a30")
    for profile in fake_nvml._state.gpus[0].profiles:
        profile.told_count = 1
    fake_nvml.set_mode(0, True)
    session = Session.open()
    for start in range(4):
        session.create_compute(
            fake_nvml.uuid(0), session.create_instance(fake_nvml.uuid(0), profile_id=14, start=start, size=1)
        )
    mig = session.survey()[0].mig
    assert mig is not None
    assert next(len(profile.placements) for profile in mig.profiles if profile.name == "1g.6gb") == 4
    assert [(instance.start, instance.compute[0].is_whole) for instance in mig.instances] == [
        (0, True),
        (1, True),
        (2, True),
        (3, True),
    ]


@pytest.mark.failure_case(23)
def test_profiles_unknown_to_an_older_driver_are_left_out(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.fail("nvmlDeviceGetGpuInstanceProfileInfoV", Code.INVALID_ARGUMENT, gpu=0, after=8)
    found = session.survey()
    assert names(found[0]) == ["1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.5gb+me"]
    assert len(names(found[1])) == 7


def test_profiles_are_not_queried_before_mig_is_on_if_the_driver_hides_them(tmp_path: Path) -> None:
    fake_nvml = node(tmp_path, "a100-sxm4-40gb", "a100-sxm4-40gb")
    fake_nvml._state.tells_profiles_when_off = 0
    fake_nvml.set_mode(1, True)
    fake_nvml.fail("nvmlDeviceGetGpuInstanceProfileInfoV", Code.UNKNOWN, gpu=0)
    first, second = Session.open().survey()
    assert first.mig is not None
    assert (first.mig.current, first.mig.pending, first.mig.profiles, first.fault) == (False, False, (), None)
    assert len(names(second)) == 7


@pytest.mark.failure_case(11)
def test_a_pending_mode_is_reported(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, False, pending=True)
    mig = session.survey()[0].mig
    assert mig is not None
    assert (mig.current, mig.pending) == (False, True)


def test_instances_are_reported_with_mig_devices_and_completeness(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    whole = fake_nvml.add_instance(0, 9, 4)
    halves = fake_nvml.add_instance(0, 14, 0, cis=2)
    orphan = fake_nvml.add_instance(0, 14, 2, cis=0)
    mig = Session.open().survey()[0].mig
    assert mig is not None
    found = {instance.gi_id: instance for instance in mig.instances}
    assert found.keys() == {whole, halves, orphan}
    assert (found[whole].profile_id, found[whole].start, found[whole].size) == (9, 4, 4)
    assert [(ci.ci_id, ci.is_whole, ci.uuid) for ci in found[whole].compute] == [(0, True, fake_nvml.mig_uuid(0, whole))]
    assert [(ci.ci_id, ci.is_whole) for ci in found[halves].compute] == [(0, False), (1, False)]
    assert found[halves].compute[1].uuid == fake_nvml.mig_uuid(0, halves, 1)
    assert found[orphan].compute == ()


def test_single_partial_compute_instance_is_not_whole(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 14, 0, cis=2)
    Session.open().destroy_compute(fake_nvml.uuid(0), gi, 1)
    mig = Session.open().survey()[0].mig
    assert mig is not None
    assert [ci.is_whole for ci in mig.instances[0].compute] == [False]


def test_instance_of_an_unlisted_profile_is_still_reported(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 15, 6)
    # The number 9, by which 1g.10gb is asked for.
    fake_nvml.fail("nvmlDeviceGetGpuInstanceProfileInfoV", Code.NOT_SUPPORTED, gpu=0, after=9, times=1)
    mig = Session.open().survey()[0].mig
    assert mig is not None
    assert 15 not in {profile.id for profile in mig.profiles}
    assert [(instance.gi_id, instance.profile_id, instance.start) for instance in mig.instances] == [(gi, 15, 6)]


def test_mig_without_any_profile_is_a_fault_since_instances_would_be_missed(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    fake_nvml.fail("nvmlDeviceGetGpuInstanceProfileInfoV", Code.NOT_SUPPORTED, gpu=0)
    fault = Session.open().survey()[0].fault
    assert fault is not None
    assert fault.kind is FaultKind.UNREADABLE


def test_processes_of_all_lists_are_reported_per_instance(fake_nvml: FakeNvml) -> None:
    fake_nvml.set_mode(0, True)
    gi = fake_nvml.add_instance(0, 9, 4)
    fake_nvml.put(0, 4_300_001, 100, gi=gi)
    fake_nvml.put(0, 4_300_001, 100, gi=gi, kind="graphics")
    fake_nvml.put(1, 4_300_002, 100, kind="graphics")
    fake_nvml.put(1, 4_300_003, 100, kind="mps")
    found = Session.open().survey()
    assert found[0].pids == ((gi, 4_300_001),)
    assert set(found[1].pids) == {(None, 4_300_002), (None, 4_300_003)}


def test_exclusive_compute_mode_is_reported(session: Session, fake_nvml: FakeNvml) -> None:
    fake_nvml.set_compute_mode(3, 3)
    assert session.survey()[3].compute_mode is ComputeMode.EXCLUSIVE_PROCESS


def test_nvlink_is_ready_only_when_the_fabric_manager_is_done_without_an_error(tmp_path: Path) -> None:
    fake_nvml = node(tmp_path, *["h100-sxm5-80gb"] * 5, "a100-sxm4-80gb")
    for gpu, (state, status) in enumerate([(0, 0), (1, 0), (2, 0), (3, 0), (3, int(Code.NOT_FOUND)), (3, 0)]):
        fake_nvml.set_fabric(gpu, state, status)
    assert [one.is_fabric_ready for one in Session.open().survey()] == [None, False, False, True, False, None]


@pytest.mark.failure_case(20)
def test_lost_gpu_does_not_affect_the_others(session: Session, fake_nvml: FakeNvml) -> None:
    before = session.survey()
    fake_nvml.lose(3)
    after = session.survey()
    assert after[:3] + after[4:] == before[:3] + before[4:]
    lost = after[3]
    assert lost.fault is not None
    assert (lost.index, lost.fault.kind) == (3, FaultKind.LOST)
    assert "(15)" in lost.fault.detail


def test_unidentifiable_gpus_are_each_reported_once(session: Session, fake_nvml: FakeNvml) -> None:
    for index in (2, 5):
        fake_nvml.fail("nvmlDeviceGetHandleByIndex_v2", Code.UNKNOWN, gpu=index)
    found = session.survey()
    assert len({one.uuid for one in found}) == 8
    assert [one.index for one in found if one.fault] == [2, 5]
    assert found[2].fault is not None
    assert found[2].fault.detail == "nvmlDeviceGetHandleByIndex: unknown (999)"


@pytest.mark.parametrize("code", [Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH])
def test_invalid_session_is_not_a_gpu_fault(session: Session, fake_nvml: FakeNvml, code: Code) -> None:
    fake_nvml.fail("nvmlDeviceGetName", code, gpu=1)
    with pytest.raises(DriverError) as caught:
        session.survey()
    assert caught.value.code == code
