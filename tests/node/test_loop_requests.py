"""What a node that waits asks of the API server, hour after hour: thousands may."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpushare_node.apply.visit import Site
from gpushare_node.clock import Stopped
from gpushare_node.kube.cluster import POOL_LABEL
from gpushare_node.policy import OnBusy
from tests.node.api_server import ApiServer
from tests.node.loop_node import SEVEN, TWO, LoopNode, mig, rollout

CALM, END = 1800.0, 4200.0
"""When the node has found its pace, and when the test ends."""

WANTED = rollout(mig(TWO, key="mig-00000002"), on_busy=OnBusy.WAIT, drain_timeout_seconds=60)


class WatchedNode(LoopNode):
    """Its labels and annotations are watched, as a run in a pod watches them."""

    def __init__(self, folder: Path, api: ApiServer) -> None:
        super().__init__(folder, api)
        self._seen: object = None

    def site(self, pool: str, *, cluster: bool = True) -> Site:
        return replace(super().site(pool, cluster=cluster), has_news=self._has_news)

    def _has_news(self) -> bool:
        before, self._seen = self._seen, (self.labels(), self.annotations())
        return before != self._seen

    def hold(self, at: Callable[[float], None]) -> None:
        """Run until the end; `at` is told the seconds since the beginning."""
        start = self.clock.now()

        def tick(time: float) -> None:
            at(time - start)
            self.clock.is_stopped = time - start > END

        self.on_tick = tick
        with pytest.raises(Stopped):
            self.run(WANTED, hold=True)


@pytest.fixture
def node(tmp_path: Path, api: ApiServer) -> WatchedNode:
    made = WatchedNode(tmp_path, api)
    made.run(mig(SEVEN))
    return made


def busy(node: LoopNode) -> None:
    node.tenant("sleeper", node.silicon.mig_uuid(0, node.gpus.gi_at(0, 0)), "nvidia.com/mig-1g.5gb")


def failing(node: LoopNode) -> None:
    node.silicon.fail("nvmlDeviceCreateGpuInstanceWithPlacement", 999)


def anothers(node: LoopNode) -> None:
    """Two pools select the node by mistake."""
    node.label(**{POOL_LABEL: "old"})
    node.runtime_pod("old")


@pytest.mark.parametrize("prepare", [busy, failing, anothers], ids=lambda one: one.__name__)
def test_103_a_node_that_waits_for_hours_asks_next_to_nothing(node: WatchedNode, prepare: Callable[[LoopNode], None]) -> None:
    prepare(node)
    node.hold(lambda time: node.api.forget_requests() if time < CALM else None)
    # A turn that a failed node keeps is renewed besides: so many nodes as `maxUnavailable` says.
    asked = [path for method, path in node.api.requests if "leases" not in path]
    assert len(asked) <= 0.02 * (END - CALM)


def test_103_what_is_asked_of_such_a_node_is_heeded_at_once(node: WatchedNode) -> None:
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

    node.hold(ask)
    assert answered[0] < CALM + 120
