"""The tests' own device plugin chooses, answers and refuses as NVIDIA's does, to which `test_transitions.py` holds it."""

import pytest

from tests.e2e.cluster.plugin import mps, wire
from tests.e2e.cluster.plugin.offer import ConfigError, Gpu, Offer, offers, preferred

GPUS = (Gpu(uuid="GPU-a", mig=False), Gpu(uuid="GPU-b", mig=False))
SHARES = tuple(f"{gpu.uuid}::{number}" for gpu in GPUS for number in range(4))


def under_mps(**flags: str) -> dict[str, object]:
    shared = {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
    return {"flags": {"mpsRoot": "/run/nvidia/mps", **flags}, "sharing": {"mps": shared}}


def test_shares_are_allocated_from_the_least_used_device() -> None:
    offer = Offer(ids=SHARES)
    assert preferred(offer, SHARES, (), 2) == ("GPU-a::0", "GPU-b::0")
    assert preferred(offer, SHARES[1:], (), 1) == ("GPU-b::0",)
    assert preferred(offer, SHARES, ("GPU-b::3",), 2) == ("GPU-b::3", "GPU-a::0")


def test_packed_shares_are_allocated_from_the_most_used_device() -> None:
    assert preferred(Offer(ids=SHARES, is_packed=True), SHARES[1:], (), 2) == ("GPU-a::1", "GPU-a::2")


def test_under_mps_a_container_gets_the_pipe_and_the_shared_memory() -> None:
    [(name, offer)] = offers(under_mps(), GPUS).items()
    answer = mps.with_pipe({}, offer.mps_root or "", name)
    assert answer.environment == {"CUDA_MPS_PIPE_DIRECTORY": "/mps/nvidia.com/gpu.shared/pipe"}
    pipe = "nvidia.com/gpu.shared/pipe"
    assert answer.mounts == {f"/mps/{pipe}": f"/run/nvidia/mps/{pipe}", "/dev/shm": "/run/nvidia/mps/shm"}
    assert wire.answers(wire.allocate_response([answer])) == [answer]


def test_mps_is_never_offered_on_mig() -> None:
    with pytest.raises(ConfigError):
        offers(under_mps(migStrategy="mixed"), GPUS)
    with pytest.raises(ConfigError):
        offers(under_mps(migStrategy="single"), (Gpu(uuid="GPU-a", mig=True, devices=(("1g.5gb", "MIG-a"),)),))


def test_preferred_allocation_request_round_trips() -> None:
    assert wire.preferred_request(wire.preference_request(SHARES, SHARES[:1], 300)) == [(SHARES, SHARES[:1], 300)]
