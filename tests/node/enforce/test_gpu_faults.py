"""A GPU with a fault that only a reset ends is not brought back while caps are enforced: no flip, no repair; it is named."""

from typing import Any

import pytest

from gpushare_node.contract.names import RUNTIME_LABEL
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reporting.outcome import Unmet
from tests.node.enforce.enforcement_loop import VIEW, EnforcementLoop
from tests.node.enforce.test_node_monitor import _hear as hear
from tests.node.enforce.test_offer_watch import ready, word  # noqa: F401 - a fixture
from tests.support.fake_nvml import FakeNvml

Ready = Any


@pytest.mark.parametrize("xid", [48, 79, 95, 119, 140, 143])
def test_missing_device_of_a_faulty_gpu_is_not_brought_back(ready: Ready, two_gpus: FakeNvml, xid: int) -> None:  # noqa: F811
    hear(ready, two_gpus, [(0, xid)])
    ready.enforcement.register(10, 1)  # The plugin has taken GPU 0 out.
    ready.run(600)
    assert (ready.api.applied, ready.api.deleted) == ([], 0)
    assert word(ready) == "GpuFaulty"
    said = ready.api.said[-1][1]
    assert f"XID {xid} (" in said
    assert two_gpus.uuid(0) in said
    assert "NVSentinel" in said
    assert "gpushare.dev/runtime=away" in said


@pytest.mark.parametrize("xid", [13, 31, 63, 92, 94])
def test_harmless_xid_withholds_no_flip(ready: Ready, two_gpus: FakeNvml, xid: int) -> None:  # noqa: F811
    hear(ready, two_gpus, [(0, xid)])
    ready.enforcement.register(10, 1)
    ready.run(120)
    assert ready.api.applied


@pytest.mark.parametrize("action", [1, 2, 3, 4, 7])
def test_recovery_action_of_the_driver_is_a_fault_until_it_is_over(
    ready: Ready,  # noqa: F811
    two_gpus: FakeNvml,
    action: int,
) -> None:
    two_gpus.recovery(1, action)
    ready.enforcement.register(10, 1)
    ready.run(120)
    assert (word(ready), ready.api.applied) == ("GpuFaulty", [])
    two_gpus.recovery(1, 0)
    ready.run(120)
    assert ready.api.applied


def test_drift_of_a_node_with_a_fault_is_not_repaired(ready: Ready, two_gpus: FakeNvml) -> None:  # noqa: F811
    hear(ready, two_gpus, [(0, 95)])
    two_gpus.set_compute_mode(1, 3)
    ready.run(200)
    assert (ready.api.deleted, word(ready)) == (0, "GpuFaulty")


def test_fault_outlives_the_pod_and_ends_with_a_boot(ready: Ready, two_gpus: FakeNvml) -> None:  # noqa: F811
    hear(ready, two_gpus, [(0, 95)])
    ready.start()
    ready.run(40)
    assert word(ready) == "GpuFaulty"
    ready.start()
    ready.monitor.boot_id = "b2"
    ready.monitor.__post_init__()
    ready.run(100)
    assert word(ready) == "Ready"


@pytest.mark.parametrize("is_sent", [False, True], ids=["a restart", "sent away"])
def test_runtime_that_is_sent_away_for_the_reset_forgets_the_fault(
    ready: Ready,  # noqa: F811
    two_gpus: FakeNvml,
    *,
    is_sent: bool,
) -> None:
    hear(ready, two_gpus, [(0, 95)])
    if is_sent:
        ready.api.view = replace(VIEW, labels={**VIEW.labels, RUNTIME_LABEL: "away"})
        ready.monitor.trigger()
        ready.run(40)
        assert word(ready) == "GpuFaulty", "as long as it is there"
    ready.monitor.let_go()
    ready.api.view = VIEW
    ready.start()
    ready.run(100)
    assert word(ready) == ("Ready" if is_sent else "GpuFaulty")


def test_taint_of_the_dra_driver_withholds_a_repair(ready: EnforcementLoop, two_gpus: FakeNvml) -> None:  # noqa: F811
    ready.monitor._offer.finding = Unmet(reason=ConditionReason.GPU_FAULTY, message="gpu-0 by gpu.nvidia.com/xid")
    ready.monitor._offer.next_look = float("inf")
    two_gpus.set_compute_mode(1, 3)
    ready.run(200)
    assert (ready.api.deleted, word(ready)) == (0, "GpuFaulty")


def test_gpu_that_is_lost_says_so_itself(ready: EnforcementLoop, two_gpus: FakeNvml) -> None:  # noqa: F811
    hear(ready, two_gpus, [(0, 95), (1, 79)])
    two_gpus.lose(1)
    ready.run(100)
    assert word(ready) == "GpuLost"
