"""A machine on which everything takes its time: what lasts long for that reason alone costs no write."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.backends.backend import Checkpoint
from gpushare_node.backends.device_plugin import DevicePlugin
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.contract.struct import replace
from gpushare_node.reconcile.run_context import Dependencies, RolloutSlot, RunContext
from gpushare_node.reporting.outcome import Unmet
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig
from tests.support.fake_api.server import ApiServer

PLUGIN_TICKS = 8


class SlowNode(LoopNode):
    """Each look at kubelet's checkpoint takes so many seconds, and the plugin needs some of the runtime's pauses."""

    def __init__(self, folder: Path, api: ApiServer, look_seconds: float) -> None:
        super().__init__(folder, api)
        self.look_seconds = look_seconds

    def deps(self, pool: str, *, cluster: bool = True) -> Dependencies:
        deps = super().deps(pool, cluster=cluster)
        backend = deps.backend
        assert isinstance(backend, DevicePlugin)

        def read() -> Checkpoint:
            self.clock.time += self.look_seconds
            return backend.read_checkpoint()

        return replace(deps, backend=replace(backend, read_checkpoint=read))

    def delay_plugin(self) -> None:
        """It takes its label up only so many ticks from now."""
        left = PLUGIN_TICKS

        def tick(_: float) -> None:
            nonlocal left
            left -= 1
            self.is_plugin_deaf = left > 0

        self.on_tick = tick


def writes_of_a_change(folder: Path, look_seconds: float) -> list[tuple[str, str]]:
    with ApiServer() as api:
        node = SlowNode(folder, api, look_seconds)
        node.run(mig(SEVEN))
        node.delay_plugin()
        api.forget_requests()
        assert node.run(mig(TWO, key="mig-00000002")).reason is ConditionReason.READY
        return api.writes()


@pytest.mark.usefixtures("_environment")
def test_a_slow_machine_writes_no_more_than_a_fast_one(tmp_path: Path) -> None:
    assert writes_of_a_change(tmp_path / "slow", 15.0) == writes_of_a_change(tmp_path / "fast", 0.0)


@pytest.fixture
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")  # so that what loading the GPUs sets is undone


@pytest.fixture
def said(tmp_path: Path, api: ApiServer) -> Callable[[Callable[[], Unmet]], list[str]]:
    """The messages of the condition while it is waited five minutes for something that is lacking all the time."""
    node = LoopNode(tmp_path, api)

    def wait(find: Callable[[], Unmet]) -> list[str]:
        deps = node.deps("training")
        context = RunContext(deps=deps, slot=RolloutSlot(deps.cluster, deps.clock))
        told: list[str] = []

        def look(_: float) -> None:
            if condition := api.condition("n1"):
                told.append(condition["message"])

        node.on_tick = look
        context.wait(find, 300.0)
        return list(dict.fromkeys(told))

    return wait


def test_changing_mismatch_is_reported_every_twenty_seconds(said: Callable[[Callable[[], Unmet]], list[str]]) -> None:
    looks = iter(range(1000))
    told = said(lambda: Unmet(reason=ConditionReason.WRONG_RESOURCES, message=f"{next(looks)} instead of 1000"))
    assert 300 / 25 - 1 <= len(told) <= 300 / 20


def test_lasting_mismatch_is_reported_once(said: Callable[[Callable[[], Unmet]], list[str]]) -> None:
    assert said(lambda: Unmet(reason=ConditionReason.WAITING_FOR_PLUGIN, message="it is not there")) == ["it is not there"]
