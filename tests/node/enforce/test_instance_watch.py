"""Instances on demand are compared with prepared claims: a difference is reported once it has lasted, and not before."""

import pytest

from gpushare_node.backends.backend import Allocation, Claim
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.enforce.offer_watch import LASTING_SECONDS, InstanceWatch
from gpushare_node.partition.state import Fault, FaultKind
from gpushare_node.vendors.driver import ComputeInstance, GpuInfo, GpuInstance, MigInfo

LATER = LASTING_SECONDS + 1
MIG_A = "MIG-00000000-51c0-5000-8000-00000000000a"


def instance(uuid: str | None = MIG_A, profile_id: int = 19, start: int = 2) -> GpuInstance:
    compute = () if uuid is None else (ComputeInstance(ci_id=0, is_whole=True, uuid=uuid),)
    return GpuInstance(gi_id=7, profile_id=profile_id, start=start, size=1, compute=compute)


def survey(*instances: GpuInstance, fault: Fault | None = None) -> tuple[GpuInfo, ...]:
    mig = MigInfo(current=True, pending=True, instances=instances)
    return (GpuInfo(index=0, uuid="GPU-0", name="NVIDIA A100-SXM4-40GB", mig=mig, fault=fault),)


def held(device: str = MIG_A, resource: str = "gpushare-lab-1g-5gb") -> Allocation:
    claim = Claim(uid="u", namespace="team", name="c")
    return Allocation(pod_uid="p", container="", resource=resource, ids=(device,), claim=claim)


def lasting(surveys: tuple[GpuInfo, ...], *allocations: Allocation) -> str | None:
    """What is reported of a state that lasts."""
    watch = InstanceWatch()
    assert watch.find(surveys, allocations, 0.0) is None, "nothing is said of what was seen once"
    found = watch.find(surveys, allocations, LATER)
    assert found is None or found.reason is ConditionReason.WRONG_INSTANCES
    return None if found is None else found.message


@pytest.mark.parametrize(
    "device",
    [MIG_A, "gpu-0-mig-1g5gb-19-2"],
    ids=["prepared", "being prepared: the driver has no UUID of it yet"],
)
def test_an_instance_of_a_claim_is_right(device: str) -> None:
    assert lasting(survey(instance()), held(device)) is None


@pytest.mark.parametrize("other", [[], [held("gpu-0-mig-1g5gb-19-3")], [held("gpu-0-mig-1g5gb-me-20-2")]], ids=len)
def test_an_instance_without_a_claim_is_named(other: list[Allocation]) -> None:
    assert lasting(survey(instance()), *other) == f"{MIG_A} on GPU 0 belongs to no claim"


def test_a_half_made_instance_is_named_too() -> None:
    assert lasting(survey(instance(None))) == "GPU instance 7 without a MIG device on GPU 0 belongs to no claim"


def test_a_claim_whose_instance_has_gone_is_named() -> None:
    assert lasting(survey(), held()) == f"{MIG_A} of claim team/c does not exist"
    assert lasting(survey(), held("GPU-0")) is None, "a whole GPU is there"
    assert lasting(survey(), held(resource="other.example.com")) is None, "what other drivers give is not watched"
    broken = Fault(kind=FaultKind.LOST, detail="gone")
    assert lasting(survey(fault=broken), held()) is None, "what a GPU has that does not answer is not known"


def test_a_difference_that_ends_or_changes_begins_anew() -> None:
    """Claims and GPUs are read at different times, so that each change of a claim looks wrong for a moment."""
    watch = InstanceWatch()
    for second in range(0, 600, 30):
        uuid = f"MIG-{second // 60}"
        allocations = (held(uuid),) if second % 60 else ()
        assert watch.find(survey(instance(uuid)), allocations, float(second)) is None
