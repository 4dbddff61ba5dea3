"""A node of device plugins on which a DRA driver of the same cards runs too: neither knows what the other gave to pods."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.backends.backend import Allocation, Claim, KubeletFiles
from gpushare_node.backends.device_plugin import DevicePlugin, read_checkpoint
from gpushare_node.contract.policy import OnBusy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reconcile.run_context import Dependencies
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.amd_node import AmdNode, amd
from tests.node.reconcile.loop_node import NAME, SEVEN, LoopNode, mig, rollout, whole
from tests.support.fake_api.server import ApiServer


class ClaimNode(LoopNode):
    """`listed` is kubelet's list of claims, joined with the driver's; None: kubelet has none, or it is not mounted."""

    listed: tuple[Allocation, ...] | None = None

    def deps(self, pool: str, *, cluster: bool = True) -> Dependencies:
        made = super().deps(pool, cluster=cluster)
        files = KubeletFiles(
            read_devices=lambda: read_checkpoint(self.checkpoint), read_claims=lambda: self.listed, needs_claims=False
        )
        return replace(
            made, backend=DevicePlugin(read_checkpoint=files.read_checkpoint, find_sockets=made.backend.find_sockets)
        )

    def claim(self, name: str, *ids: str, driver: str = "gpu.nvidia.com", phase: str = "Running") -> None:
        """A pod that sleeps, with a claim: kubelet lists it with these devices, none while the driver prepares them."""
        add_claiming(self.api, name, phase=phase)
        claim = Claim(uid=f"uid-{name}-gpu", namespace="science", name=f"{name}-gpu")
        given = Allocation(pod_uid=f"uid-{name}", container="", resource=driver, ids=ids, claim=claim)
        self.listed = (*(self.listed or ()), given)


def add_claiming(api: ApiServer, name: str, *, phase: str = "Running") -> None:
    api.add_pod(name, namespace="science", node=NAME, uid=f"uid-{name}", phase=phase)

    def change(pod: Any) -> None:
        pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": "whole"}]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "gpu"}]}
        pod["status"]["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": f"{name}-gpu"}]

    api.edit("pods", name, change, namespace="science")


def offer(api: ApiServer, driver: str = "gpu.nvidia.com", devices: Sequence[str] = ("gpu-0",), node: str = NAME) -> None:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    listed = [{"name": one, "attributes": {"type": {"string": "gpu"}}} for one in devices]
    api.add(
        "resourceslices", f"0-{driver}-{node}", {"spec": {"driver": driver, "nodeName": node, "pool": pool, "devices": listed}}
    )


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> ClaimNode:
    made = ClaimNode(tmp_path, api, A100, A100)
    assert made.run(whole(2)).reason is ConditionReason.READY
    made.fake_nvml.forget_calls()
    return made


DIVIDED = rollout(mig(SEVEN, SEVEN), on_busy=OnBusy.FAIL)


def test_idle_pod_with_a_claim_keeps_its_gpu(node: ClaimNode) -> None:
    node.claim("sleeper", node.fake_nvml.uuid(1))
    outcome = node.run(DIVIDED)
    assert (outcome.reason, "science/sleeper" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "gpu.amd.com"])
def test_claim_without_known_devices_may_have_any(node: ClaimNode, driver: str) -> None:
    node.claim("sleeper", driver=driver)
    assert node.run(DIVIDED).reason is ConditionReason.GPU_BUSY
    assert node.fake_nvml.calls() == []


def test_claim_of_a_removed_driver_holds_its_gpu_only_while_its_pod_is_there(node: ClaimNode) -> None:
    """Kubelet cannot take it back without the driver, and lists it after a reboot too."""
    node.claim("sleeper")
    assert node.run(DIVIDED).reason is ConditionReason.GPU_BUSY
    node.api.remove("pods", "sleeper", namespace="science")
    assert node.run(DIVIDED).reason is ConditionReason.READY


@pytest.mark.parametrize("driver", ["gpu.nvidia.com", "nic.example.com"])
def test_missing_list_of_claims_proves_nothing(node: ClaimNode, driver: str) -> None:
    node.claim("sleeper", node.fake_nvml.uuid(1), driver=driver)
    node.listed = None
    outcome = node.run(DIVIDED)
    assert (outcome.reason, "list of claims" in outcome.message) == (ConditionReason.GPU_BUSY, True)
    assert node.fake_nvml.calls() == []


@pytest.mark.parametrize(("driver", "phase"), [("nic.example.com", "Running"), ("gpu.nvidia.com", "Succeeded")])
def test_claims_that_hold_no_gpu_are_in_no_way(node: ClaimNode, driver: str, phase: str) -> None:
    if phase == "Running":
        node.claim("other", driver=driver)
    else:
        add_claiming(node.api, "other", phase=phase)
        node.listed = ()
    assert node.run(DIVIDED).reason is ConditionReason.READY


def test_gpus_that_a_driver_offers_beside_the_plugin_are_not_ready(node: ClaimNode) -> None:
    offer(node.api)
    outcome = node.run(whole(2, replicas=4))
    assert (outcome.reason, "0-gpu.nvidia.com-n1" in outcome.message) == (ConditionReason.BACK_END_RUNNING, True)
    node.api.remove("resourceslices", "0-gpu.nvidia.com-n1")
    assert node.run(whole(2, replicas=4)).reason is ConditionReason.READY
    assert node.taints() == set()


@pytest.mark.parametrize(
    "offered",
    [{"driver": "compute-domain.nvidia.com"}, {"devices": ()}, {"node": "n2"}],
    ids=["another driver", "no devices", "another node"],
)
def test_other_slices_are_in_no_way(node: ClaimNode, offered: dict[str, Any]) -> None:
    offer(node.api, **offered)
    assert node.run(whole(2, replicas=4)).reason is ConditionReason.READY


def test_amds_driver_beside_its_plugin_is_not_ready(tmp_path: Path, api: ApiServer) -> None:
    node = AmdNode(tmp_path, api)
    offer(api, "gpu.amd.com")
    outcome = node.run(amd("SPX", "NPS1"))
    assert outcome is not None
    assert outcome.reason is ConditionReason.BACK_END_RUNNING
