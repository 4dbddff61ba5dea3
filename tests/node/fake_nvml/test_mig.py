"""MIG on the fake GPUs: geometry, conflicts, ids, UUIDs, mode changes and reboots, held against what hardware does."""

import itertools
from ctypes import byref, c_uint

import pynvml
import pytest

from gpushare.facts.catalog import cards
from tests.support.fake_nvml import FakeNvml
from tests.support.fake_nvml.session import add_compute, create, device, placements, profiles, refused, session

GENERATIONS = ("a100-sxm4-40gb", "a30", "h100-sxm5-80gb", "b200-180gb", "rtx-pro-6000-server")
NO_ROOM, IN_USE, RESET_REQUIRED = 23, 19, 16


def node(folder, *card_ids, driver="580.95.05"):
    """GPUs of these cards with MIG on."""
    made = FakeNvml.make(folder, card_ids, driver=driver)
    for index in range(len(card_ids)):
        made.set_mode(index, current=True)
    made.load()
    return made


@pytest.fixture
def mig(fake_nvml):
    fake_nvml.set_mode(0, current=True)
    return fake_nvml


@pytest.mark.parametrize("card", GENERATIONS)
def test_profiles_and_placements_are_those_of_the_catalogue(tmp_path, card):
    node(tmp_path, card)
    geometry = cards.load(card).mig
    assert geometry is not None
    with session():
        told = profiles(device())
        for profile in geometry.profiles:
            info = told.pop(profile.name)
            assert info.id == (profile.nvml_enum if profile.profile_id is None else profile.profile_id)
            assert info.sliceCount == profile.compute_slices
            assert profile.memory_mib in {None, info.memorySizeMB}
            assert placements(device(), info.id) == [(place.start, place.size) for place in profile.placements]
        assert not told


def test_ids_are_the_hardwares_and_not_the_enums(mig):
    with session():
        assert [
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device(), number, version).id
            for version in (1, 2)
            for number in (0, 7, 9, 1, 2, 3, 4)
        ] == [19, 20, 15, 14, 9, 5, 0] * 2
        assert pynvml.nvmlDeviceGetGpuInstanceProfileInfoById(device(), 14).name == "MIG 2g.10gb"
        with refused(2):
            pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device(), 18)


@pytest.mark.parametrize("card", GENERATIONS)
def test_disjoint_profile_pairs_can_be_created_and_overlapping_ones_cannot(tmp_path, card):
    """A pair may fail for want of engines too: those the catalogue must explain by its totals or counts."""
    made = node(tmp_path, card)
    geometry = cards.load(card).mig
    assert geometry is not None
    with session():
        told = profiles(device())
        for one, two in itertools.product(geometry.profiles, repeat=2):
            made.set_mode(0, current=False), made.set_mode(0, current=True)
            pynvml.nvmlShutdown(), pynvml.nvmlInit()
            first, second = one.placements[0], two.placements[-1]
            create(device(), told[one.name].id, first.start, first.size)
            apart = first.start + first.size <= second.start
            engines = all(
                total is None or (getattr(one.engines, name) or 0) + (getattr(two.engines, name) or 0) <= total
                for name in ("decoders", "encoders", "jpeg", "ofa")
                for total in [getattr(geometry.engine_totals, name)]
            )
            if apart and engines and (one != two or one.max_count > 1):
                create(device(), told[two.name].id, second.start, second.size)
            else:
                with refused(NO_ROOM):
                    create(device(), told[two.name].id, second.start, second.size)


def test_a_place_that_the_profile_does_not_have_is_an_invalid_argument(mig):
    with session():
        for start, size in ((1, 2), (6, 2), (0, 1), (0, 99)):
            with refused(2):
                create(device(), 14, start, size)
        with refused(2):
            create(device(), 77, 0, 1)


def test_driver_chosen_placement_depends_on_the_order_of_creation(mig):
    with session():
        for profile in (19, 19, 14):
            create(device(), profile)
        assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device(), 9) == 0
        with refused(NO_ROOM):
            create(device(), 9)
    mig.set_mode(0, current=False)
    mig.set_mode(0, current=True)
    with session():
        for profile in (9, 14, 19, 19):
            assert pynvml.nvmlDeviceGetGpuInstanceRemainingCapacity(device(), profile) > 0
            create(device(), profile)
    assert sorted((profile, start) for _, profile, start, _, _ in mig.instances(0)) == [(9, 4), (14, 2), (19, 0), (19, 1)]


def test_only_one_instance_has_media_extensions(mig):
    with session():
        create(device(), 20, 0, 1)
        with refused(NO_ROOM):
            create(device(), 20, 1, 1)
        create(device(), 19, 1, 1)


def test_a30_reports_a_wrong_instance_count(tmp_path):
    node(tmp_path, "a30")
    with session():
        assert profiles(device())["1g.6gb"].instanceCount != 4
        for place in placements(device(), 14):
            create(device(), 14, *place)
        with refused(NO_ROOM):
            create(device(), 14)


def test_instance_ids_are_reused_and_uuids_are_not(mig):
    seen = set()
    with session():
        for _ in range(3):
            instance = create(device(), 9, 4, 4)
            made = add_compute(instance, 2)
            info = pynvml.nvmlComputeInstanceGetInfo_v2(made)
            assert (pynvml.nvmlGpuInstanceGetInfo(instance).id, info.id) == (1, 0)
            seen.add(pynvml.nvmlDeviceGetUUID(info.device))
            assert pynvml.nvmlDeviceGetUUID(info.device) == mig.mig_uuid(0, 1)
            pynvml.nvmlComputeInstanceDestroy(made)
            pynvml.nvmlGpuInstanceDestroy(instance)
            for stale in (
                lambda made=made: pynvml.nvmlComputeInstanceDestroy(made),
                lambda instance=instance: pynvml.nvmlGpuInstanceGetInfo(instance),
                lambda info=info: pynvml.nvmlDeviceGetUUID(info.device),
            ):
                with refused(2):
                    stale()
    assert len(seen) == 3


def test_an_instance_is_destroyed_after_its_compute_instances_and_its_processes(mig):
    with session():
        instance = create(device(), 9, 0, 4)
        made = add_compute(instance, 2)
        with refused(IN_USE):
            pynvml.nvmlGpuInstanceDestroy(instance)
        mig.put(0, 900001, 10, gi=1)
        with refused(IN_USE):
            pynvml.nvmlComputeInstanceDestroy(made)
        mig.take(0, 900001)
        pynvml.nvmlComputeInstanceDestroy(made)
        mig.put(0, 900001, 10, gi=1)
        with refused(IN_USE):
            pynvml.nvmlGpuInstanceDestroy(instance)
        mig.put(0, 900002, 10, gi=2)
        mig.take(0, 900001)
        pynvml.nvmlGpuInstanceDestroy(instance)
    assert mig.instances(0) == []


def test_compute_instances_are_created_while_slices_are_free(mig):
    with session():
        instance = create(device(), 9, 0, 4)
        for profile in (3, 7):
            with refused(3):
                pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, 0)
        add_compute(instance, 1)
        with refused(NO_ROOM):
            add_compute(instance, 1)
        add_compute(instance, 0)
        found, count = (pynvml.c_nvmlComputeInstance_t * 8)(), c_uint()
        pynvml.nvmlGpuInstanceGetComputeInstances(instance, 0, found, byref(count))
        attributes = pynvml.nvmlDeviceGetAttributes(pynvml.nvmlComputeInstanceGetInfo_v2(found[0]).device)
        assert (attributes.gpuInstanceSliceCount, attributes.computeInstanceSliceCount) == (3, 1)
        assert attributes.memorySizeMB == 19968
    assert mig.instances(0) == [(1, 9, 0, 4, 2)]


def test_instances_of_another_tool_are_visible(mig):
    gi = mig.add_instance(0, 9, 4, cis=3)
    orphan = mig.add_instance(0, 19, 0, cis=0)
    with pytest.raises(ValueError, match="no place"):
        mig.add_instance(0, 5, 0)
    with session():
        found, count = (pynvml.c_nvmlGpuInstance_t * 2)(), c_uint()
        pynvml.nvmlDeviceGetGpuInstances(device(), 9, found, byref(count))
        assert [pynvml.nvmlGpuInstanceGetInfo(one).id for one in found[: count.value]] == [gi]
        pynvml.nvmlGpuInstanceDestroy(pynvml.nvmlDeviceGetGpuInstanceById(device(), orphan))
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device(), 2)) == mig.mig_uuid(0, gi, 2)
    assert mig.calls() == [f"nvmlGpuInstanceDestroy(0,{orphan})"]


def test_mig_devices_are_counted_with_holes(mig):
    with session():
        made = [(add_compute(instance := create(device(), 19, start, 1), 0), instance) for start in range(3)]
        pynvml.nvmlComputeInstanceDestroy(made[1][0])
        handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device(), 2)
        assert pynvml.nvmlDeviceGetMaxMigDeviceCount(device()) == 7
        for index, code in ((1, 6), (7, 2)):
            with refused(code):
                pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device(), index)
        assert pynvml.nvmlDeviceIsMigDeviceHandle(handle).value == 1
        assert (pynvml.nvmlDeviceGetGpuInstanceId(handle), pynvml.nvmlDeviceGetComputeInstanceId(handle)) == (3, 0)
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)) == mig.uuid(0)
        assert pynvml.nvmlDeviceGetUUID(pynvml.nvmlDeviceGetHandleByUUID(mig.mig_uuid(0, 3))) == mig.mig_uuid(0, 3)
        with refused(3):
            pynvml.nvmlDeviceGetGpuInstanceId(device())


def test_without_mig_there_are_no_instances_and_no_mig_devices(fake_nvml):
    with session():
        assert pynvml.nvmlDeviceGetMaxMigDeviceCount(device()) == 0
        with refused(3):
            create(device(), 19, 0, 1)
        with refused(3):
            pynvml.nvmlDeviceGetMigDeviceHandleByIndex(device(), 0)
        with refused(3):
            pynvml.nvmlDeviceGetGpuInstances(device(), 19, (pynvml.c_nvmlGpuInstance_t * 7)(), byref(c_uint()))


@pytest.mark.parametrize(("driver", "known"), [("460.32.03", 5), ("470.57.02", 6), ("535.104.05", 7), ("580.95.05", 7)])
def test_an_older_driver_knows_fewer_profiles_and_tells_none_before_mig_is_on(tmp_path, driver, known):
    made = node(tmp_path, "a100-sxm4-40gb", driver=driver)
    with session():
        assert len(profiles(device())) == known
        if not driver.startswith("580"):
            with refused(2):
                pynvml.nvmlDeviceGetGpuInstanceProfileInfo(device(), 10)
    made.set_mode(0, current=False)
    with session():
        tells = pynvml.nvmlDeviceGetFieldValues(device(), [199])[0].value.uiVal
        assert len(profiles(device())) == (known if tells else 0)
    assert bool(tells) == driver.startswith("580")


def test_a_switch_voids_the_handles_of_its_gpu_until_a_new_session(fake_nvml):
    with session():
        old, other = device(0), device(1)
        assert pynvml.nvmlDeviceSetMigMode(old, 1) == 0
        for handle in (old, device(0)):
            with refused(2):
                pynvml.nvmlDeviceGetMigMode(handle)
        assert pynvml.nvmlDeviceGetMigMode(other) == [0, 0]
    with session():
        assert pynvml.nvmlDeviceGetMigMode(device(0)) == [1, 1]
        assert pynvml.nvmlDeviceSetMigMode(device(0), 1) == 0
        assert pynvml.nvmlDeviceGetMigMode(device(0)) == [1, 1], "no change, so nothing becomes void"


def test_mode_change_of_a_used_gpu_stays_pending(fake_nvml):
    fake_nvml.put(0, 900001, None)
    with session():
        assert pynvml.nvmlDeviceSetMigMode(device(), 1) == IN_USE
        assert pynvml.nvmlDeviceGetMigMode(device()) == [0, 1]
        fake_nvml.clear(0)
        assert pynvml.nvmlDeviceSetMigMode(device(), 1) == 0
    fake_nvml.add_instance(0, 19, 0, cis=0)
    with session():
        assert pynvml.nvmlDeviceSetMigMode(device(), 0) == IN_USE
    assert fake_nvml.mode(0) == (True, False)


def test_blocked_reset_is_returned_the_requested_number_of_times(fake_nvml):
    fake_nvml.reset_blocked(0, RESET_REQUIRED, times=2)
    with session():
        assert [pynvml.nvmlDeviceSetMigMode(device(), 1) for _ in range(3)] == [RESET_REQUIRED, RESET_REQUIRED, 0]


def test_a_reboot_takes_all_instances_and_on_hopper_the_mode_as_well(tmp_path):
    made = node(tmp_path, "a100-sxm4-40gb", "h100-sxm5-80gb", "a30", "h100-sxm5-80gb")
    made.add_instance(0, 19, 0)
    made.put(0, 900001, 5)
    for index, current in ((2, False), (3, False)):
        made.set_mode(index, current=current, pending=True)
    made.reboot()
    assert [made.mode(index) for index in range(4)] == [(True, True), (False, False), (True, True), (False, False)]
    assert made.instances(0) == []
    with session():
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(device()) == []


def test_a_mig_device_has_its_own_memory(mig):
    gi = mig.add_instance(0, 9, 4)
    mig.put(0, 900001, 100, gi=gi)
    mig.put(0, 900002, 50)
    mig.unattributed(0, 7, gi=gi)
    with session():
        own, whole = (
            pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid), pynvml.nvmlMemory_v2)
            for uuid in (mig.mig_uuid(0, gi), mig.uuid(0))
        )
    assert (own.total >> 20, own.used >> 20, whole.used >> 20) == (19968, 107, 157)
