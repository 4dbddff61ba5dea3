"""A node is Ready, and its taints go, only when all holds: NVLink is set up; a lost GPU is named before its missing offer."""

from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from tests.node.gpus.gpu_node import A100, H100
from tests.node.reconcile.loop_node import SEVEN, LoopNode, mig, whole
from tests.support.fake_api.server import ApiServer


@pytest.mark.parametrize("state", [1, 2])
@pytest.mark.parametrize("gpus", [(0,), (0, 1)])
def test_tenants_come_when_nvlink_is_set_up(tmp_path: Path, api: ApiServer, state: int, gpus: tuple[int, ...]) -> None:
    node = LoopNode(tmp_path, api, H100, H100)
    node.label(**{"nvidia.com/gpu.product": "h100"})
    for gpu in gpus:
        node.fake_nvml.set_fabric(gpu, state)
    outcome = node.run(whole(2, replicas=4, card=H100))
    names = ", ".join(map(str, gpus))
    assert (outcome.reason, outcome.message) == (ConditionReason.FABRIC_NOT_READY, f"NVLink of GPU {names} is not set up")
    assert not outcome.is_usable


def test_nvlink_that_is_set_up_meanwhile_makes_the_node_ready(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, H100)
    node.fake_nvml.set_fabric(0, 2)
    node.on_tick = lambda time: node.fake_nvml.set_fabric(0, 3) if time > 60 else None
    assert node.run(whole(1, replicas=4, card=H100)).reason is ConditionReason.READY
    assert 60 < node.clock.now() < 120
    assert node.taints() == set()


@pytest.mark.parametrize("state", [0, 3])
def test_gpu_without_nvswitch_or_with_nvlink_is_not_waited_for(tmp_path: Path, api: ApiServer, state: int) -> None:
    node = LoopNode(tmp_path, api, H100)
    node.fake_nvml.set_fabric(0, state)
    assert node.run(whole(1, card=H100)).reason is ConditionReason.READY


def test_gpu_that_is_lost_meanwhile_explains_what_the_plugin_does_not_offer(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, A100, A100)
    node.is_plugin_deaf = True

    def lose(time: float) -> None:
        if time > 30:
            node.fake_nvml.lose(1)

    node.on_tick = lose
    outcome = node.run(mig(SEVEN, SEVEN))
    assert outcome.reason is ConditionReason.GPU_LOST
    assert outcome.message.startswith("GPU 1: ")
