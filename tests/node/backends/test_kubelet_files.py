"""What device plugins and what claims gave, as one: of every node, whichever its pool has now."""

import pytest

from gpushare_node.backends.backend import Allocation, Checkpoint, CheckpointError, Claim, KubeletFiles

PLUGIN = Allocation(pod_uid="p", container="main", resource="nvidia.com/gpu", ids=("GPU-a",))
CLAIM = Claim(uid="u", namespace="team", name="c")
CLAIMED = Allocation(pod_uid="q", container="", resource="gpu.nvidia.com", ids=("GPU-b",), claim=CLAIM)
DEVICES = Checkpoint(allocations=(PLUGIN,), registered={"nvidia.com/gpu": frozenset({"GPU-a"})})
NO_DEVICES = Checkpoint(allocations=(), registered={}, is_there=False)


def files(devices: Checkpoint, claims: tuple[Allocation, ...] | None, *, needs_claims: bool) -> KubeletFiles:
    return KubeletFiles(read_devices=lambda: devices, read_claims=lambda: claims, needs_claims=needs_claims)


@pytest.mark.parametrize("needs_claims", [False, True])
def test_both_are_read_whichever_the_pool_has(needs_claims: bool) -> None:
    found = files(DEVICES, (CLAIMED,), needs_claims=needs_claims).read_checkpoint()
    assert found.allocations == (PLUGIN, CLAIMED)
    assert (found.registered, found.is_there, found.has_claims) == (DEVICES.registered, True, True)


def test_without_claims_a_device_plugins_checkpoint_is_what_it_was() -> None:
    for devices in (DEVICES, NO_DEVICES):
        assert files(devices, None, needs_claims=False).read_checkpoint() == devices


@pytest.mark.parametrize(("claims", "is_there"), [(None, False), ((), True), ((CLAIMED,), True)])
def test_a_node_of_dra_needs_the_list_of_claims_and_no_plugins_checkpoint(
    claims: tuple[Allocation, ...] | None, is_there: bool
) -> None:
    assert files(NO_DEVICES, claims, needs_claims=True).read_checkpoint().is_there is is_there
    assert not files(NO_DEVICES, claims, needs_claims=False).read_checkpoint().is_there


def test_nothing_new_is_the_same_object() -> None:
    both = files(DEVICES, (CLAIMED,), needs_claims=True)
    before = both.read_checkpoint()
    assert both.read_checkpoint() is before
    both.read_claims = lambda: ()
    assert both.read_checkpoint().allocations == (PLUGIN,)


@pytest.mark.parametrize("unread", ["read_devices", "read_claims"])
@pytest.mark.parametrize("needs_claims", [False, True])
def test_either_that_cannot_be_read_is_an_error(unread: str, needs_claims: bool) -> None:
    def fail() -> Checkpoint:
        raise CheckpointError("cannot be read")

    both = files(DEVICES, (), needs_claims=needs_claims)
    setattr(both, unread, fail)
    with pytest.raises(CheckpointError):
        both.read_checkpoint()
