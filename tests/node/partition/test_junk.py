"""Arbitrary hardware and arbitrary tables: a plan always comes, is always legal, and no other one destroys less."""

from itertools import combinations, product

from hypothesis import given
from hypothesis import strategies as st

from gpushare_node.contract.policy import DesiredInstance
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.partition import plan
from gpushare_node.partition.operations import DestroyInstance
from gpushare_node.partition.state import Fault, FaultKind, Instance, Mig, Placement, Profile
from tests.node.partition.builders import A100, gpu, mig_of, policy, state
from tests.node.partition.simulator import run

NUMBERS = st.integers(-3, 14)
SLICES = st.integers(0, 5)
SIZES = st.integers(1, 3)


def of_slices(start: int, size: int) -> set[int]:
    return set(range(start, start + size))


@st.composite
def tables(draw) -> tuple[Profile, ...]:
    """Up to three profiles with up to four places each, on a row of at most eight slices."""
    places = st.lists(st.builds(Placement, start=SLICES, size=SIZES), max_size=4, unique=True)
    number = draw(st.integers(1, 3))
    return tuple(Profile(id=one, name=f"p{one}", placements=tuple(draw(places))) for one in range(number))


@st.composite
def existing_instances(draw, table: tuple[Profile, ...]) -> tuple[Instance, ...]:
    """Instances at places of the table, none on another's slices; some of them are broken."""
    chosen: list[Instance] = []
    every = [(profile.id, place) for profile in table for place in profile.placements]
    for number, (profile_id, place) in enumerate(draw(st.permutations(every))):
        taken = {unit for one in chosen for unit in of_slices(one.start, one.size)}
        if draw(st.booleans()) and not taken & of_slices(place.start, place.size):
            chosen.append(
                Instance(
                    gi_id=number,
                    profile_id=profile_id,
                    start=place.start,
                    size=place.size,
                    is_whole=draw(st.integers(0, 4)) > 0,
                    is_busy=False,
                )
            )
    return tuple(chosen)


def most_kept(table: tuple[Profile, ...], desired: list[int], existing: tuple[Instance, ...]) -> int | None:
    """By trying every place for every desired instance; None if they have no places together."""
    whole = {(instance.profile_id, instance.start, instance.size) for instance in existing if instance.is_whole}
    best = None
    for choice in product(*([(one, at.start, at.size) for at in table[one].placements] for one in desired)):
        if all(not of_slices(*a[1:]) & of_slices(*b[1:]) for a, b in combinations(choice, 2)):
            best = max(best or 0, len(whole & set(choice)))
    return best


@given(st.data())
def test_plan_keeps_the_most_instances_for_any_placement_table(data) -> None:
    table = data.draw(tables())
    existing = data.draw(existing_instances(table))
    desired = data.draw(st.lists(st.integers(0, len(table) - 1), min_size=1, max_size=5))
    asked = [DesiredInstance(profile=f"p{one}", profile_id=one, start=data.draw(SLICES), size=1) for one in desired]
    before = state(gpu(Mig(current=True, pending=True, instances=existing, profiles=table)))
    planned = plan(before, policy(asked))
    best = most_kept(table, desired, existing)
    if best is None:
        assert [unfit_gpu.reason for unfit_gpu in planned.unfit] == [ConditionReason.INVALID_LAYOUT]
        return
    (one,) = planned.gpus
    destroyed = [step for step in one.operations if isinstance(step, DestroyInstance)]
    assert len(destroyed) == len(existing) - best
    after = run(before, one.operations)
    assert sorted(one.profile_id for one in mig_of(after).instances) == sorted(desired)
    assert all(instance.is_whole for instance in mig_of(after).instances)
    assert plan(after, policy(asked)).operations == ()


JUNK_INSTANCES = st.builds(
    Instance,
    gi_id=NUMBERS,
    profile_id=st.sampled_from([0, 5, 9, 14, 19, 99, -1]),
    start=NUMBERS | st.just(10**12),
    size=NUMBERS,
    is_whole=st.booleans(),
    is_busy=st.booleans(),
)
JUNK_PROFILES = st.sampled_from(A100) | st.builds(
    Profile,
    id=NUMBERS,
    name=st.none() | st.sampled_from(["1g.5gb", "3g.20gb", ""]),
    placements=st.lists(st.builds(Placement, start=NUMBERS, size=NUMBERS), max_size=5).map(tuple),
)
JUNK_MIG = st.builds(
    Mig,
    current=st.booleans(),
    pending=st.booleans(),
    is_pending_ours=st.booleans(),
    instances=st.lists(JUNK_INSTANCES, max_size=9).map(tuple),
    profiles=st.lists(JUNK_PROFILES, max_size=9).map(tuple),
)
JUNK_GPUS = st.builds(
    gpu,
    JUNK_MIG | JUNK_MIG | st.none(),
    st.integers(0, 4),
    is_busy=st.booleans(),
    memory_mib=st.none() | NUMBERS,
    name=st.sampled_from(["NVIDIA A100-SXM4-40GB"] * 5 + ["", "Tesla T4"]),
    fault=st.sampled_from([None] * 5 + [Fault(kind=kind, detail="nvml") for kind in FaultKind]),
)
DESIRED = st.builds(
    DesiredInstance,
    profile=st.sampled_from(["1g.5gb", "3g.20gb", "7g.40gb", "9g"]),
    profile_id=st.none() | st.integers(0, 20),
    start=st.integers(0, 9),
    size=st.integers(1, 9),
)


@given(
    st.lists(JUNK_GPUS, max_size=5, unique_by=lambda one: one.index),
    st.lists(st.lists(DESIRED, max_size=9).map(tuple), min_size=1, max_size=4),
)
def test_every_gpu_gets_a_plan_or_a_reason_for_any_hardware_state(gpus, layouts) -> None:
    planned = plan(state(*gpus), policy(*layouts))
    indexes = [*(one.index for one in planned.gpus), *(unfit_gpu.index for unfit_gpu in planned.unfit)]
    assert sorted(indexes) == sorted({one.index for one in gpus} | set(range(len(layouts))))
    for one in planned.gpus:
        (own,) = [own for own in gpus if own.index == one.index]
        assert {step.uuid for step in one.operations} <= {own.uuid}
        existing = own.mig.instances if own.mig and own.mig.current else ()
        gone = [step.instance for step in one.operations if isinstance(step, DestroyInstance)]
        assert sorted(gone, key=repr) == sorted(one.needs_idle, key=repr)
        assert all(gone.count(instance) <= existing.count(instance) for instance in gone)
        if any(instance.is_busy for instance in gone):
            assert one.is_blocked
