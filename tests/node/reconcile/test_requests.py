"""What a node that waits asks of the API server, hour after hour: thousands may."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.contract.names import POOL_LABEL
from gpushare_node.contract.policy import OnBusy
from gpushare_node.core.clock import Stopped
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig, rollout
from tests.support.fake_api.server import ApiServer

CALM, END = 1800.0, 4200.0
"""When the node has found its pace, and when the test ends."""

DESIRED = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.WAIT)


def hold(node: LoopNode, at: Callable[[float], None], drain_timeout_seconds: int = 60) -> None:
    """Run until the end; `at` is told the seconds since the beginning."""
    start = node.clock.now()

    def tick(time: float) -> None:
        at(time - start)
        node.clock.is_stopped = time - start > END

    node.on_tick = tick
    with pytest.raises(Stopped):
        node.run(rollout(DESIRED, drain_timeout_seconds=drain_timeout_seconds), hold=True)


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> LoopNode:
    made = LoopNode(tmp_path, api)
    made.run(mig(SEVEN))
    return made


def busy(node: LoopNode) -> None:
    node.tenant("sleeper", node.fake_nvml.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")


def failing(node: LoopNode) -> None:
    node.fake_nvml.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)


def anothers(node: LoopNode) -> None:
    """Two pools select the node by mistake."""
    node.label(**{POOL_LABEL: "old"})
    node.runtime_pod("old")


@pytest.mark.failure_case(103)
@pytest.mark.parametrize("prepare", [busy, failing, anothers], ids=lambda one: one.__name__)
def test_node_that_waits_for_hours_sends_few_requests(node: LoopNode, prepare: Callable[[LoopNode], None]) -> None:
    prepare(node)
    hold(node, lambda time: node.api.forget_requests() if time < CALM else None)
    # A slot that a failed node keeps is renewed besides: so many nodes as `maxUnavailable` says.
    asked = [path for method, path in node.api.requests if "leases" not in path]
    assert len(asked) <= 0.02 * (END - CALM)


@pytest.mark.failure_case(111)
def test_node_that_yields_for_hours_sends_few_requests(node: LoopNode) -> None:
    busy(node)
    hold(node, lambda time: node.api.forget_requests() if time < 10 else None, drain_timeout_seconds=7200)
    assert node.taints() == set()
    assert len(node.api.requests) <= 0.02 * END


@pytest.mark.failure_case(103)
def test_release_request_to_a_waiting_node_is_honoured_at_once(node: LoopNode) -> None:
    busy(node)
    answered: list[float] = []

    def ask(time: float) -> None:
        if time < CALM or answered:
            return
        annotations = node.annotations()
        if "gpushare.dev/release" not in annotations:
            node.entries.clear()
            node.publish()
            node.annotate("gpushare.dev/release", node.api.asking())
        if "gpushare.dev/released" in annotations:
            answered.append(time)

    hold(node, ask)
    assert answered[0] < CALM + 120
