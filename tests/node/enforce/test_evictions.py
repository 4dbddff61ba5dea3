"""Pods that are evicted: what is asked for, how often, and what follows when it is refused."""

import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube.cluster import Eviction, PodView
from gpushare_node.enforce.work_queue import WorkQueue
from gpushare_node.guard.identity import Process
from gpushare_node.guard.process_list import Mps
from tests.node.enforce.enforcement import EnforcementFixture, RecordedCluster, await_end, lives
from tests.node.enforce.rig import Rig
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import DEAF, ProcessPool
from tests.support.waiting import PATIENCE, wait_for


def test_evictions_are_asked_for_and_failures_are_counted(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    rig = Rig(tmp_path, two, started, enforcement={"action": "evict"})
    pid = rig.stage.admit_and_begin(1, "greedy", 5000)
    rig.api.is_down = True
    rig.run(10)
    rig.api.is_down = False
    rig.run(30)
    assert lives(pid)
    assert [pod.name for pod in rig.api.evicted] == ["greedy"]
    assert rig.stage.metric("evictions_total{") == [
        'evictions_total{outcome="failed"} 1', 'evictions_total{outcome="evicted"} 1']


def test_an_eviction_that_waited_is_not_asked_for_when_the_container_is_calm_by_then(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    waiting: list[Any] = []

    class Late:
        def send(self, errand: Any) -> bool:
            waiting.append(errand)
            return True

    stage = EnforcementFixture(tmp_path, two, started, queue=Late(), enforcement={"action": "evict"})
    pid = stage.admit_and_begin(1, "sorry", 5000)
    stage.run(6)
    stage.fake_nvml.put(0, pid, 1000)
    stage.run(2)
    assert waiting
    for errand in waiting:
        errand()
    assert stage.told.evicted == []


class Terminator:
    """MPS that ends every client at once."""

    def state(self) -> Mps:
        return Mps.REACHABLE

    def limit_mib(self, _device: int | str) -> int | None:
        return 4096

    def terminate(self, targets: Iterable[Process]) -> frozenset[Process]:
        return frozenset(targets)


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


@pytest.mark.failure_case(62)
def test_an_api_server_that_hangs_holds_up_no_mps_client_s_end(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    queue, is_over = WorkQueue(), threading.Event()
    queue.send(lambda: _wait(is_over))
    stage = EnforcementFixture(tmp_path, two, started, mps=Terminator(), queue=queue, mode="mps", profile="mps-01234567")
    pid = stage.admit_and_begin(1, "client", 5000, DEAF)
    stage.run(13)
    is_over.set()
    await_end(pid)


class Cluster(RecordedCluster):
    """One whose budgets permit nothing, and which deletes what it is told to."""

    def evict(self, pod: PodView, *, is_forced: bool = False) -> Eviction:
        super().evict(pod, is_forced=is_forced)
        return Eviction.EVICTED if is_forced else self.answer


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("answer", [Eviction.REFUSED, Eviction.THROTTLED])
def test_a_budget_is_asked_three_times_and_then_heeded_no_more(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, answer: Eviction
) -> None:
    """A tenant may write a budget for its own pods that permits nothing forever."""
    stage = EnforcementFixture(tmp_path, two, started, enforcement={"action": "evict"}, told=Cluster(answer=answer))
    pid = stage.admit_and_begin(1, "protected", 5000)
    stage.run(6)
    assert stage.told.reasons("protected") == ["GPUMemoryOverCap", "GPUPodEvictionFailed"]
    stage.run(60)
    assert (len(stage.told.evicted), stage.told.forced) == (3, 0)
    assert "GPUPodEvicted" not in stage.told.reasons("protected")
    stage.run(30)
    assert stage.told.forced == 1
    assert stage.told.events[-1].reason == "GPUPodEvicted"
    assert "its pod has been deleted" in stage.told.events[-1].message
    assert lives(pid)


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("answer", [Eviction.FORBIDDEN, Eviction.REFUSED, Eviction.EVICTED])
@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_a_pod_that_no_request_ends_is_ended_by_signals(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, answer: Eviction, mode: str
) -> None:
    """A right that somebody took away, a deletion that is refused, a year of grace: none makes immune."""
    told = RecordedCluster(answer=answer)
    stage = EnforcementFixture(
        tmp_path, two, started, enforcement={"action": "evict"}, mode=mode, profile=f"{mode}-01234567", told=told
    )
    pid = stage.admit_and_begin(1, "stays", 5000, DEAF)
    stage.run(60)
    assert lives(pid)
    assert ("GPUPodEvicted" in told.reasons("stays")) == (answer is Eviction.EVICTED)
    stage.run(30 if answer is Eviction.FORBIDDEN else 120)
    await_end(pid)
    assert stage.told.reasons("stays").count("GPUPodEvictionFailed") <= 1


@pytest.mark.failure_case(62)
def test_a_server_that_does_not_answer_has_refused_nothing(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    rig = Rig(tmp_path, two, started, mode="mps", profile="mps-01234567", mps=None)
    rig.api.is_down = True
    pid = rig.stage.admit_and_begin(1, "client", 5000)
    rig.run(300)
    assert lives(pid)
    assert "GPUPodEvicted" not in rig.api.reasons()


def test_an_errand_that_finds_no_room_is_sent_again() -> None:
    queue, is_over, done = WorkQueue(), threading.Event(), threading.Event()
    queue.send(lambda: _wait(is_over))
    while queue.send(done.set):
        done.clear()
    is_over.set()
    wait_for(lambda: queue.send(done.set))
    assert done.wait(PATIENCE)
