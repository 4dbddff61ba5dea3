"""A container that loses its devices while it waits ends, for only its successor has them again."""

from pathlib import Path

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import Stopped
from tests.node.reconcile.loop_node import LoopNode, rollout, whole
from tests.support.fake_api.server import ApiServer


@pytest.mark.parametrize("code", [4, 17, 999])
def test_lost_driver_access_ends_a_holding_run(tmp_path: Path, api: ApiServer, code: int) -> None:
    node = LoopNode(tmp_path, api, "t4")
    node.run(whole(1, replicas=4, card="t4"))
    node.tenant("long-job", f"{node.fake_nvml.uuid(0)}::0", "nvidia.com/gpu.shared")
    start = node.clock.now()

    def tick(time: float) -> None:
        if time - start > 100:
            node.fake_nvml.unload(code)
        node.clock.is_stopped = time - start > 3600

    node.on_tick = tick
    outcome = node.run(rollout(whole(1, replicas=2, card="t4"), drain_timeout_seconds=60), hold=True)
    assert outcome.reason is ConditionReason.ACCESS_LOST
    assert node.clock.now() - start < 1200


def test_a_driver_that_never_worked_here_is_waited_for(tmp_path: Path, api: ApiServer) -> None:
    node = LoopNode(tmp_path, api, "t4")
    node.fake_nvml.unload(999)
    start = node.clock.now()
    node.on_tick = lambda time: setattr(node.clock, "is_stopped", time - start > 1800)
    with pytest.raises(Stopped):
        node.run(whole(1, replicas=4, card="t4"), hold=True)
    assert node.condition() == "WaitingForDriver"
