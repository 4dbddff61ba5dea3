"""Single situations of partitioning."""

from itertools import permutations

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.partition import plan
from gpushare_node.partition.operations import CreateInstance, DestroyInstance, DisableMig, EnableMig
from gpushare_node.partition.state import Fault, FaultKind, Placement, Profile
from tests.node.partition.builders import A100, CARD, desired, gpu, instance, instances, mig, mig_of, policy, state
from tests.node.partition.simulator import run

BALANCED = (("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3))


def only(state, policy):
    planned = plan(state, policy)
    assert planned.unfit == ()
    (one,) = planned.gpus
    return one


def refusal(state, policy):
    planned = plan(state, policy)
    assert planned.operations == ()
    (one,) = planned.unfit
    return one


@pytest.mark.failure_case(1)
def test_gpu_without_mig_is_unchanged_if_the_policy_needs_no_mig() -> None:
    one = only(state(gpu(None)), policy(()))
    assert (one.operations, one.needs_idle_gpu, one.is_blocked, one.is_final) == ((), False, False, True)


@pytest.mark.failure_case(2)
def test_mig_instances_on_a_gpu_without_mig_are_an_invalid_layout() -> None:
    assert refusal(state(gpu(None)), policy(desired(("7g.40gb", 0)))).reason is ConditionReason.INVALID_LAYOUT


@pytest.mark.failure_case(3)
def test_existing_layout_needs_no_operations_and_no_idle_tenants() -> None:
    existing = [replace(one, is_busy=True) for one in instances(*BALANCED)]
    one = only(state(gpu(mig(*existing), is_busy=True)), policy(desired(*BALANCED)))
    assert (one.operations, one.needs_idle, one.needs_idle_gpu, one.is_blocked) == ((), (), False, False)


@pytest.mark.failure_case(4)
def test_right_instances_at_other_placements_need_no_operations() -> None:
    elsewhere = instances(("1g.5gb", 4), ("1g.5gb", 6), ("2g.10gb", 2))
    here = desired(("2g.10gb", 0), ("1g.5gb", 2), ("1g.5gb", 3))
    assert only(state(gpu(mig(*elsewhere))), policy(here)).operations == ()
    assert only(state(gpu(mig(*elsewhere))), policy(here[:2])).operations != ()


@pytest.mark.failure_case(5)
@pytest.mark.parametrize("order", list(permutations(BALANCED)), ids=lambda order: "-".join(name[:2] for name, _ in order))
def test_the_order_in_which_the_policy_lists_instances_does_not_matter(order) -> None:
    one = only(state(gpu(mig())), policy(desired(*order)))
    assert {(step.start, step.size) for step in one.operations} == {(4, 4), (0, 2), (2, 1), (3, 1)}
    assert mig_of(run(state(gpu(mig())), one.operations)).instances


@pytest.mark.failure_case(6)
@pytest.mark.parametrize(
    "layout",
    [[("1g.5gb", 0)] * 8, [("3g.20gb", 0), ("3g.20gb", 4), ("1g.5gb", 0)], [("4g.20gb", 0)] * 2],
    ids=["eight-1g", "two-3g-and-1g", "two-4g"],
)
@pytest.mark.parametrize("current", [True, False])
def test_a_layout_that_the_driver_cannot_place_is_refused_before_anything_is_touched(layout, current) -> None:
    found = refusal(state(gpu(mig(*instances(("7g.40gb", 0)), current=current))), policy(desired(*layout)))
    assert found.reason is ConditionReason.INVALID_LAYOUT
    assert f"{len(layout) if len(set(layout)) == 1 else 2} {layout[0][0]}" in found.detail


@pytest.mark.failure_case(7)
def test_instance_in_use_is_kept_and_others_are_created_beside_it() -> None:
    running = instance("3g.20gb", 0, 5, is_busy=True)
    idle = instance("3g.20gb", 4, 6)
    before = state(gpu(mig(idle, running)))
    small = [("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2)]
    one = only(before, policy(desired(("3g.20gb", 4), *small)))
    assert (one.is_blocked, one.needs_idle) == (False, (idle,))
    assert running in mig_of(run(before, one.operations)).instances


def test_equally_good_plan_with_the_fewest_disturbed_tenants_is_chosen() -> None:
    seven = [instance("1g.5gb", start, start + 1, is_busy=start in (1, 4, 6)) for start in range(7)]
    one = only(state(gpu(mig(*seven))), policy(desired(("1g.5gb", 0), ("1g.5gb", 2), ("1g.5gb", 3))))
    assert [step.instance.start for step in one.operations] == [0, 2, 3, 5]
    assert not one.is_blocked


@pytest.mark.failure_case(8)
def test_a_tenant_in_the_way_blocks_its_own_gpu_only() -> None:
    whole = replace(instances(("7g.40gb", 0))[0], is_busy=True)
    before = state(gpu(mig(whole), 0), gpu(mig(*instances(("7g.40gb", 0))), 1))
    planned = plan(before, policy(desired(*BALANCED), desired(*BALANCED)))
    assert [one.is_blocked for one in planned.gpus] == [True, False]
    assert [one.needs_idle for one in planned.gpus] == [(whole,), (replace(whole, is_busy=False),)]
    assert run(before, planned.gpus[1].operations).gpus[0] == before.gpus[0]


def test_client_on_an_unknown_instance_blocks_destruction_but_not_creation() -> None:
    half = instances(("3g.20gb", 0))
    going = only(state(gpu(mig(*half), is_busy=True)), policy(desired(("4g.20gb", 0))))
    coming = only(state(gpu(mig(*half), is_busy=True)), policy(desired(("3g.20gb", 0), ("3g.20gb", 4))))
    assert (going.is_blocked, coming.is_blocked) == (True, False)


@pytest.mark.parametrize("is_busy", [True, False])
def test_a_change_of_mode_needs_the_whole_gpu_idle(is_busy) -> None:
    one = only(state(gpu(mig(current=False), is_busy=is_busy)), policy(desired(("7g.40gb", 0))))
    assert (one.needs_idle_gpu, one.is_blocked) == (True, is_busy)
    assert isinstance(one.operations[0], EnableMig)
    off = only(state(gpu(mig(replace(instances(("1g.5gb", 0))[0], is_busy=is_busy)))), policy(()))
    assert (off.needs_idle_gpu, off.is_blocked) == (True, is_busy)
    assert isinstance(off.operations[-1], DisableMig)


def test_cancelling_a_pending_mode_switch_needs_the_whole_gpu_idle() -> None:
    running = replace(instances(("7g.40gb", 0))[0], is_busy=True)
    own = mig(running, pending=False, is_pending_ours=True)
    one = only(state(gpu(own)), policy(desired(("7g.40gb", 0))))
    assert (one.operations, one.is_blocked) == ((EnableMig(uuid="GPU-0"),), True)


def test_instances_listed_with_mig_off_are_ignored() -> None:
    one = only(state(gpu(mig(*instances(("1g.5gb", 0)), current=False))), policy(desired(("1g.5gb", 0))))
    assert [type(step) for step in one.operations] == [EnableMig, CreateInstance]


@pytest.mark.failure_case(11)
@pytest.mark.parametrize("layout", [(), desired(("7g.40gb", 0))], ids=["off", "on"])
def test_unwanted_pending_mode_change_belongs_to_another_program(layout) -> None:
    own = mig(current=bool(layout), pending=not layout)
    assert refusal(state(gpu(own)), policy(layout)).reason is ConditionReason.PENDING_FOREIGN_CHANGE
    ours = only(state(gpu(replace(own, is_pending_ours=True))), policy(layout))
    assert isinstance(ours.operations[0], EnableMig if layout else DisableMig), "what this program asked for it may call off"
    assert ours.needs_idle_gpu


@pytest.mark.failure_case(11)
@pytest.mark.parametrize("is_on", [True, False])
def test_pending_change_to_the_desired_mode_is_completed(is_on) -> None:
    own = mig(current=not is_on, pending=is_on)
    one = only(state(gpu(own)), policy(desired(("7g.40gb", 0)) if is_on else ()))
    assert isinstance(one.operations[0], EnableMig if is_on else DisableMig)


@pytest.mark.failure_case(17)
def test_instance_without_compute_is_recreated_even_if_it_is_desired() -> None:
    orphan = instance("3g.20gb", 4, 3, is_whole=False)
    one = only(state(gpu(mig(orphan))), policy(desired(("3g.20gb", 4))))
    assert [type(step) for step in one.operations] == [DestroyInstance, CreateInstance]


@pytest.mark.failure_case(18)
def test_split_instance_is_destroyed_after_waiting_for_its_tenants() -> None:
    split = instance("7g.40gb", 0, 2, is_whole=False, is_busy=True)
    one = only(state(gpu(mig(split))), policy(desired(("7g.40gb", 0))))
    assert one.operations[0] == DestroyInstance(uuid="GPU-0", instance=split)
    assert one.is_blocked


@pytest.mark.failure_case(20)
@pytest.mark.parametrize(
    ("kind", "reason"), [(FaultKind.LOST, ConditionReason.GPU_LOST), (FaultKind.UNREADABLE, ConditionReason.GPU_UNREADABLE)]
)
def test_one_faulty_gpu_of_eight_does_not_stop_the_others(kind, reason) -> None:
    gpus = [gpu(mig(), index) for index in range(8)]
    gpus[3] = gpu(None, 3, name="", fault=Fault(kind=kind, detail="GetMigMode: GPU is lost"))
    planned = plan(state(*gpus), policy(*[desired(*BALANCED)] * 8))
    assert [(unfit_gpu.index, unfit_gpu.reason, unfit_gpu.detail) for unfit_gpu in planned.unfit] == [
        (3, reason, "GetMigMode: GPU is lost")
    ]
    assert [one.index for one in planned.gpus] == [0, 1, 2, 4, 5, 6, 7]
    assert len(planned.operations) == 7 * 4


@pytest.mark.failure_case(23)
def test_a_driver_that_knows_fewer_profiles_makes_the_layout_invalid_and_names_the_profile() -> None:
    older = tuple(profile for profile in A100 if profile.name != "1g.10gb")
    found = refusal(state(gpu(mig(profiles=older))), policy(desired(("1g.10gb", 0))))
    assert found.reason is ConditionReason.INVALID_LAYOUT
    assert "1g.10gb" in found.detail


@pytest.mark.failure_case(23)
def test_profile_is_looked_up_by_id_if_the_driver_has_no_names() -> None:
    nameless = tuple(replace(profile, name=None) for profile in A100)
    one = only(state(gpu(mig(profiles=nameless))), policy(desired(*BALANCED)))
    assert len(one.operations) == 4
    unknown = tuple(replace(instance, profile_id=None) for instance in desired(*BALANCED))
    assert refusal(state(gpu(mig(profiles=nameless))), policy(unknown)).reason is ConditionReason.INVALID_LAYOUT


def test_profile_id_with_another_driver_name_is_not_used() -> None:
    renamed = tuple(replace(profile, name=f"{profile.name}+new") for profile in A100)
    assert refusal(state(gpu(mig(profiles=renamed))), policy(desired(("7g.40gb", 0)))).reason is ConditionReason.INVALID_LAYOUT


@pytest.mark.failure_case(27)
def test_layout_without_instances_means_mig_off() -> None:
    assert only(state(gpu(mig())), policy(())).operations == (DisableMig(uuid="GPU-0"),)


def test_mig_that_is_on_without_any_profile_is_unreadable() -> None:
    found = refusal(state(gpu(mig(profiles=()))), policy(desired(("7g.40gb", 0))))
    assert found.reason is ConditionReason.GPU_UNREADABLE


def test_driver_placements_override_the_policys() -> None:
    moved = tuple(
        replace(one, id=77, placements=(Placement(start=2, size=3),)) if one.name == "3g.20gb" else one for one in A100
    )
    one = only(state(gpu(mig(profiles=moved))), policy(desired(("3g.20gb", 4), ("1g.5gb", 2), ("1g.5gb", 6))))
    made = [(step.profile_id, step.start, step.size) for step in one.operations]
    assert made == [(19, 0, 1), (77, 2, 3), (19, 6, 1)], "what the policy says holds where it can: 1g.5gb at 6"


def test_a_profile_without_id_in_the_policy_is_found_by_its_name() -> None:
    unknown = tuple(replace(one, profile_id=None) for one in desired(*BALANCED))
    assert only(state(gpu(mig())), policy(unknown)) == only(state(gpu(mig())), policy(desired(*BALANCED)))


def test_existing_instance_is_kept_at_a_placement_missing_in_the_table() -> None:
    table = tuple(Profile(id=one.id, name=one.name, placements=one.placements[-1:]) for one in A100)
    one = only(state(gpu(mig(*instances(("3g.20gb", 0)), profiles=table))), policy(desired(("3g.20gb", 0))))
    assert one.operations == ()


@pytest.mark.parametrize(
    ("changed", "is_right"),
    [
        ({"pci_device_id": None, "memory_mib": None}, True),
        ({"name": "A100-SXM4-40GB", "pci_device_id": None}, True),
        ({"name": "Graphics Device"}, True),
        ({"name": "Graphics Device", "memory_mib": None}, True),
        ({"name": "Graphics Device", "memory_mib": 81920}, False),
        ({"name": "NVIDIA A100-SXM4-80GB", "pci_device_id": "0x20B210DE"}, False),
        ({"name": "", "pci_device_id": None}, False),
    ],
)
def test_a_card_is_known_by_its_name_or_by_its_id_and_memory_together(changed, is_right) -> None:
    planned = plan(state(gpu(mig(), **changed)), policy(desired(*BALANCED)))
    assert [unfit_gpu.reason for unfit_gpu in planned.unfit] == ([] if is_right else [ConditionReason.CARD_MISMATCH])


def test_gpu_of_another_card_is_unchanged_in_every_mode() -> None:
    other = replace(CARD, name="NVIDIA L4", pci_device_ids=())
    found = refusal(state(gpu(mig(*instances(("7g.40gb", 0))))), policy((), card=other))
    assert found.reason is ConditionReason.CARD_MISMATCH
    assert "NVIDIA L4" in found.detail


@pytest.mark.parametrize("place", range(3))
def test_display_adapter_next_to_the_pools_gpus_is_reported(place) -> None:
    models = ["NVIDIA A100-SXM4-40GB"] * 2
    models.insert(place, "NVIDIA T400")
    gpus = [gpu(mig() if "A100" in name else None, index, name=name, pci_device_id=None) for index, name in enumerate(models)]
    planned = plan(state(*gpus), policy(*[desired(("7g.40gb", 0))] * 2))
    assert next(unfit_gpu.detail for unfit_gpu in planned.unfit if unfit_gpu.index == place).startswith(
        "this GPU is NVIDIA T400"
    )


@pytest.mark.parametrize("present", [range(3), range(1, 4), range(5)], ids=["too-few", "first-is-gone", "too-many"])
def test_unexpected_gpu_count_with_equal_layouts_partitions_the_present_gpus(present) -> None:
    planned = plan(state(*(gpu(mig(), index) for index in present)), policy(*[desired(("7g.40gb", 0))] * 4))
    assert [one.index for one in planned.gpus] == sorted(set(present) & set(range(4)))
    unfit = [(unfit_gpu.index, unfit_gpu.reason) for unfit_gpu in planned.unfit]
    assert unfit == [(index, ConditionReason.GPU_COUNT_MISMATCH) for index in sorted(set(present) ^ set(range(4)))]


def test_unexpected_gpu_count_with_different_layouts_changes_nothing() -> None:
    layouts = [desired(("7g.40gb", 0)), desired(*BALANCED), desired(*BALANCED)]
    planned = plan(state(gpu(mig(), 0), gpu(mig(), 1)), policy(*layouts))
    assert planned.gpus == ()
    assert [(unfit_gpu.index, unfit_gpu.reason) for unfit_gpu in planned.unfit] == [
        (index, ConditionReason.GPU_COUNT_MISMATCH) for index in range(3)
    ]


def test_lost_gpu_is_reported_as_lost_despite_a_wrong_gpu_count() -> None:
    lost = gpu(None, 0, fault=Fault(kind=FaultKind.LOST, detail="gone"))
    planned = plan(state(lost), policy(desired(("7g.40gb", 0)), desired(*BALANCED)))
    assert [unfit_gpu.reason for unfit_gpu in planned.unfit] == [ConditionReason.GPU_LOST, ConditionReason.GPU_COUNT_MISMATCH]
