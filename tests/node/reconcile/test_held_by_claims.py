"""What pods hold by claims, when a change asks for it: what kubelet has prepared, and any device if that is not known."""

import pytest

from gpushare_node.adapters.kube.cluster import PodClaim
from gpushare_node.backends.backend import Allocation, Checkpoint, Claim
from gpushare_node.contract.struct import replace
from gpushare_node.reconcile.usage import find_holders
from tests.node.reconcile.test_decisions import pod


def by_claim(uid: str, name: str = "c", resource: str = "gpushare-pool", ids: tuple[str, ...] = ("GPU-1",)) -> Allocation:
    claim = Claim(uid=f"uid-{name}", namespace="default", name=name)
    return Allocation(pod_uid=uid, container="", resource=resource, ids=ids, claim=claim)


def test_a_pod_holds_the_devices_of_its_claims_until_they_are_no_longer_prepared() -> None:
    allocations = (
        by_claim("idle"),
        by_claim("ended", ids=("GPU-2",)),
        by_claim("unknown", ids=("gpu-0",)),
        by_claim("nic", resource="nic.example.com", ids=()),
    )
    pods = [replace(pod(name), claims=(PodClaim(name="c", requests={}),)) for name in ("idle", "unknown", "nic")]
    pods.append(pod("ended", phase="Succeeded"))
    for is_there in (True, False):
        checkpoint = Checkpoint(allocations=allocations, registered={}, has_claims=True, is_there=is_there)
        found = {one.pod_uid: one for one in find_holders(checkpoint, pods)}
        devices = {"idle": {"GPU-1"}, "ended": {"GPU-2"}, "unknown": {"gpu-0"}}
        assert {name: one.devices for name, one in found.items()} == devices
        assert found["idle"].resources == {"gpushare-pool"}
        assert (found["idle"].may_hold({"GPU-9"}), found["unknown"].may_hold({"GPU-9"})) == (False, True)


@pytest.mark.parametrize(
    ("checkpoint", "phase", "is_holder"),
    [
        ({"has_claims": True}, "Running", True),
        ({"has_claims": True}, "Pending", False),
        ({"has_claims": True, "is_there": False}, "Pending", False),
        ({"has_claims": True}, "Failed", False),
        ({"has_claims": False, "is_there": False}, "Pending", True),
        ({"has_claims": False, "is_there": False}, "Running", True),
        ({"has_claims": False}, "Running", True),
        ({"has_claims": False}, "Pending", False),
        ({"has_claims": False}, "Succeeded", False),
    ],
    ids=[
        "lost by kubelet",
        "not prepared yet",
        "not prepared, no plugin",
        "ended",
        "no list of claims",
        "no list of claims, running",
        "a missing list is no proof",
        "not started beside the plugin's",
        "ended without a list",
    ],
)
def test_a_pod_with_a_claim_that_kubelet_does_not_list_may_hold_any_device(
    checkpoint: dict[str, bool], phase: str, *, is_holder: bool
) -> None:
    known = Checkpoint(allocations=(by_claim("one", "other"),), registered={}, **checkpoint)
    pods = [replace(pod("two", phase=phase), claims=(PodClaim(name="c", requests={}),))]
    found = [one for one in find_holders(known, pods) if one.pod_uid == "two"]
    assert [one.may_hold({"GPU-9"}) for one in found] == [True] * is_holder
