"""What ResourceSlices of a node are compared with: classes, the GPUs that exist, completeness, and how claims share them."""

from collections.abc import Collection
from typing import Any

import pytest

from gpushare_node.adapters.kube.slices import SliceDevice, SliceView, are_on_demand, view_slices
from gpushare_node.backends.backend import Checkpoint
from gpushare_node.backends.dra import offer
from gpushare_node.contract.policy import DesiredGpu, DraShares, ModeSwitch, Policy, PoolDra
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from tests.node.backends.dra.claim_files import SCENES, recorded
from tests.node.reconcile.dra_node import by_claims
from tests.node.reconcile.loop_node import TWO, mig, whole

UUIDS = ("MIG-a", "MIG-b")
POLICY = by_claims(mig(TWO))
CLASS = "gpushare-training-3g-20gb"


def expected(policy: Policy, missing: Collection[int] = ()) -> dict[str, int]:
    backend = offer.DraBackend(policy=policy, read_checkpoint=lambda: Checkpoint(allocations=(), registered={}))
    return backend.expected(policy, missing)


def device(uuid: str, **changed: object) -> SliceDevice:
    made = SliceDevice(name=f"gpu-0-{uuid}", type="mig", profile="3g.20gb", uuid=uuid)
    return replace(made, **changed)


RIGHT = SliceView(name="s1", node="n1", pool="n1", generation=2, count=1, devices=tuple(map(device, UUIDS)))


def find(*some: SliceView, policy: Policy = POLICY) -> str | None:
    found = offer.find_mismatch(policy, "n1", expected(policy), frozenset(UUIDS), some)
    assert found is None or found.reason is ConditionReason.WRONG_SLICES
    return None if found is None else found.message.removeprefix("the node's ResourceSlices: ")


def test_the_planned_devices_once_each_are_right() -> None:
    assert find(RIGHT) is None
    halves = [replace(RIGHT, name=f"s{at}", count=2, devices=(one,)) for at, one in enumerate(RIGHT.devices)]
    assert find(*halves) is None
    assert find(RIGHT, replace(RIGHT, name="old", generation=1, count=7, devices=())) is None


def test_none_is_waited_for() -> None:
    found = offer.find_mismatch(POLICY, "n1", expected(POLICY), frozenset(UUIDS), ())
    assert found is not None
    assert found.reason is ConditionReason.WAITING_FOR_SLICES


@pytest.mark.parametrize(
    ("some", "text"),
    [
        ((RIGHT, replace(RIGHT, name="s2", node="n2")), "they include s2 of node n2"),
        ((replace(RIGHT, count=2),), "pool n1 has 1 of 2"),
        ((replace(RIGHT, devices=(*RIGHT.devices, device("MIG-c"))),), "gpu-0-MIG-c do not exist"),
        ((replace(RIGHT, devices=(*RIGHT.devices, device("MIG-a", name="gpu-9"))),), "MIG-a are listed more than once"),
        ((RIGHT, replace(RIGHT, name="s2", pool="other", generation=1)), "MIG-a, MIG-b are listed more than once"),
        (
            (
                replace(RIGHT, count=2, devices=(device("MIG-a", name="gpu-0"),)),
                replace(RIGHT, name="s2", count=2, devices=(device("MIG-b", name="gpu-0"),)),
            ),
            "gpu-0 of pool n1 are several devices",
        ),
        ((replace(RIGHT, devices=RIGHT.devices[:1]),), "MIG-b are missing"),
        (
            (replace(RIGHT, devices=(device("MIG-a"), device("MIG-b", profile="1g.5gb"))),),
            f"{CLASS}: 1 instead of 2, mig 1g.5gb: 1 instead of 0",
        ),
        (
            (replace(RIGHT, devices=(device("MIG-a"), device("MIG-b", type="vfio"))),),
            f"{CLASS}: 1 instead of 2, vfio 3g.20gb: 1 instead of 0",
        ),
        (
            (replace(RIGHT, devices=(device("MIG-a"), device("MIG-b", shares="memory"))),),
            "claims share gpu-0-MIG-b by memory, instead of by nothing",
        ),
    ],
)
def test_every_difference_is_named(some: tuple[SliceView, ...], text: str) -> None:
    assert find(*some) == text


def test_devices_that_the_driver_has_tainted_have_a_fault() -> None:
    """Also where the plan differs for another cause: nothing is done that would take the taint away."""
    tainted = (replace(RIGHT, devices=(device("MIG-a", taints=("gpu.nvidia.com/xid",)),)),)
    made: dict[str, Any] = {"policy": by_claims(whole()), "read_checkpoint": lambda: Checkpoint(allocations=(), registered={})}
    backend = offer.DraBackend(**made, read_slices=lambda: tainted)
    for found in (backend.find_fault(), backend.find_mismatch({}, frozenset(), None, {})):
        assert found is not None
        assert found.reason is ConditionReason.GPU_FAULTY
        assert found.message == "the DRA driver keeps claims away from gpu-0-MIG-a by gpu.nvidia.com/xid"
    assert offer.DraBackend(**made, read_slices=lambda: (RIGHT,)).find_fault() is None


@pytest.mark.parametrize(
    ("shares", "given", "is_right"),
    [
        (DraShares.MEMORY, {"shares": "memory"}, True),
        (DraShares.MEMORY, {"shares": "unlimited"}, False),
        (DraShares.MEMORY, {}, False),
        (DraShares.COUNT, {"shares": "count", "count": 4}, True),
        (DraShares.COUNT, {"shares": "count", "count": 2}, False),
        (DraShares.COUNT, {"shares": "memory"}, False),
    ],
)
def test_claims_share_devices_as_planned(shares: DraShares, given: dict[str, object], *, is_right: bool) -> None:
    made = by_claims(whole(replicas=4))
    policy = replace(made, dra=PoolDra(driver="gpu.nvidia.com", shares=shares, on_demand=False))
    one = SliceDevice(name="gpu-0", type="gpu", profile="", uuid="GPU-a")
    listed = (replace(RIGHT, devices=(replace(one, **given),)),)
    assert (offer.find_mismatch(policy, "n1", {"gpushare-training": 1}, frozenset({"GPU-a"}), listed) is None) is is_right


def test_devices_of_missing_gpus_are_not_expected() -> None:
    policy = by_claims(mig(TWO, TWO, ()))
    shares = (*policy.shares, replace(policy.shares[0], resource="gpushare-training", profile=None))
    policy = replace(policy, shares=shares, resources=((CLASS, 4), ("gpushare-training", 1)))
    assert expected(policy, (1,)) == {CLASS: 2, "gpushare-training": 1}
    assert expected(policy, (2,)) == {CLASS: 4}


SHARES = {"count": "count", "exclusive": "", "limits": "memory", "memory": "memory", "mig": "memory"}


@pytest.mark.parametrize("scene", SCENES)
def test_slices_of_nvidias_driver_are_understood(scene: str) -> None:
    found = view_slices(recorded(scene, "resourceslices"))
    devices = [one for each in found for one in each.devices]
    assert {one.shares for one in devices} == {SHARES[scene]}
    assert {one.count for one in devices} == {4 if scene == "count" else 0}
    assert {one.type for one in devices} == {"mig" if scene == "mig" else "gpu"}
    assert all(one.uuid.startswith("MIG-" if scene == "mig" else "GPU-") for one in devices)
    assert {one.profile for one in devices} == ({"1g.5gb", "2g.10gb", "3g.20gb"} if scene == "mig" else {""})
    assert all(each.pool == each.node and each.count == len(found) for each in found)


@pytest.mark.parametrize(("written", "count"), [("999", 999), ("1k", 1000), ("1001", 1001), ("2k", 2000), ("none", 0)])
def test_counted_shares_are_read_as_the_api_server_writes_them(written: str, count: int) -> None:
    (one, *rest) = recorded("count", "resourceslices")
    for each in one["spec"]["devices"]:
        each["capacity"]["shares"]["value"] = written
    found = view_slices([one, *rest])[0]
    assert {each.count for each in found.devices} == {count}


def on_demand(switch: ModeSwitch = ModeSwitch.RUNTIME, gpus: int = 1) -> Policy:
    """A pool of one profile that can be at two places of each GPU."""
    desired = tuple(DesiredGpu(index=index, instances=(), on_demand=switch) for index in range(gpus))
    dra = PoolDra(driver="gpu.nvidia.com", shares=None, on_demand=True)
    return replace(POLICY, dra=dra, gpus=desired, resources=((CLASS, 2 * gpus),))


def place(name: str, **changed: object) -> SliceDevice:
    return replace(SliceDevice(name=name, type="mig", profile="3g.20gb", uuid=""), **changed)


PLACES = (place("gpu-0-mig-3g20gb-9-0"), place("gpu-0-mig-3g20gb-9-4"))
OTHER_PROFILE = place("gpu-0-mig-1g5gb-me-20-0", profile="1g.5gb+me")
WHOLE = SliceDevice(name="gpu-0", type="gpu", profile="", uuid="GPU-a")


def find_on_demand(*devices: SliceDevice, switch: ModeSwitch = ModeSwitch.RUNTIME) -> str | None:
    return find(replace(RIGHT, devices=devices), policy=on_demand(switch))


def test_the_places_of_the_pools_profiles_are_right_whatever_instances_there_are() -> None:
    assert find_on_demand(*PLACES) is None
    assert find_on_demand(*PLACES, OTHER_PROFILE) is None


def test_whole_gpus_are_listed_only_where_the_driver_switches_mig() -> None:
    assert find_on_demand(*PLACES, WHOLE, switch=ModeSwitch.DRIVER) is None
    assert find_on_demand(*PLACES, WHOLE) == "gpu-0 are no places for instances on demand"


@pytest.mark.parametrize(
    ("devices", "text"),
    [
        (PLACES[:1], f"{CLASS}: 1 instead of 2"),
        ((*PLACES, PLACES[0]), "gpu-0-mig-3g20gb-9-0 of pool n1 are several devices"),
        ((PLACES[0], place("gpu-0-mig-3g20gb")), "gpu-0-mig-3g20gb are no places for instances on demand"),
        ((*PLACES, place("gpu-0-vfio", type="vfio")), "gpu-0-vfio are no places for instances on demand"),
        ((PLACES[0], place("gpu-0-mig-3g20gb-9-4", uuid="MIG-a")), "the driver runs without DynamicMIG"),
        ((PLACES[0], replace(PLACES[1], shares="memory")), "claims share gpu-0-mig-3g20gb-9-4 by memory"),
    ],
)
def test_every_difference_of_places_is_named(devices: tuple[SliceDevice, ...], text: str) -> None:
    found = find_on_demand(*devices)
    assert found is not None
    assert text in found


def test_places_of_missing_gpus_are_not_expected() -> None:
    policy = on_demand(gpus=3)
    assert expected(policy) == {CLASS: 6}
    assert expected(policy, (0, 2)) == {CLASS: 2}
    assert expected(policy, (0, 1, 2)) == {}


def test_a_driver_of_instances_on_demand_is_told_by_what_it_lists() -> None:
    assert are_on_demand([replace(RIGHT, devices=PLACES)]) is True
    assert are_on_demand([RIGHT]) is False
    assert are_on_demand([replace(RIGHT, devices=(WHOLE,))]) is False
    assert are_on_demand([replace(RIGHT, devices=())]) is None
