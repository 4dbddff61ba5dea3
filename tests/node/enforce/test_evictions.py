"""Pods that are evicted: what is asked for, how often, and what follows when it is refused."""

import threading
from pathlib import Path
from typing import Any

import pytest

from gpushare_node.adapters.kube.cluster import Eviction, PodView
from gpushare_node.core.worker import WorkQueue
from tests.node.enforce.enforcement import EnforcementFixture, RecordedCluster, await_end, lives
from tests.node.enforce.enforcement_loop import EnforcementLoop
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM, ProcessPool
from tests.support.waiting import PATIENCE, wait_for


def test_evictions_are_requested_and_failures_counted(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool, enforcement={"action": "evict"})
    pid = enforcement_loop.enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement_loop.api.is_down = True
    enforcement_loop.run(10)
    enforcement_loop.api.is_down = False
    enforcement_loop.run(30)
    assert lives(pid)
    assert [pod.name for pod in enforcement_loop.api.evicted] == ["greedy"]
    assert enforcement_loop.enforcement.metric("evictions_total{") == [
        'evictions_total{outcome="failed"} 1',
        'evictions_total{outcome="evicted"} 1',
    ]


def test_queued_eviction_is_dropped_if_the_container_is_below_its_cap(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    waiting: list[Any] = []

    class Late:
        def send(self, job: Any) -> bool:
            waiting.append(job)
            return True

    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, queue=Late(), enforcement={"action": "evict"})
    pid = enforcement.admit_and_begin(1, "sorry", 5000)
    enforcement.run(6)
    enforcement.fake_nvml.put(0, pid, 1000)
    enforcement.run(2)
    assert waiting
    for job in waiting:
        job()
    assert enforcement.told.evicted == []


def _wait(event: threading.Event) -> None:
    event.wait(PATIENCE)


class Cluster(RecordedCluster):
    """One whose budgets permit nothing, and which deletes what it is told to."""

    def evict(self, pod: PodView, *, is_forced: bool = False, is_moved: bool = False) -> Eviction:
        super().evict(pod, is_forced=is_forced)
        return Eviction.EVICTED if is_forced else self.answer


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("answer", [Eviction.REFUSED, Eviction.THROTTLED])
def test_pod_is_evicted_despite_its_budget_after_three_refusals(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, answer: Eviction
) -> None:
    """A tenant may write a budget for its own pods that permits nothing forever."""
    enforcement = EnforcementFixture(
        tmp_path, two_gpus, process_pool, enforcement={"action": "evict"}, told=Cluster(answer=answer)
    )
    pid = enforcement.admit_and_begin(1, "protected", 5000)
    enforcement.run(6)
    assert enforcement.told.reasons("protected") == ["GPUMemoryOverCap", "GPUPodEvictionFailed"]
    enforcement.run(60)
    assert (len(enforcement.told.evicted), enforcement.told.forced) == (3, 0)
    assert "GPUPodEvicted" not in enforcement.told.reasons("protected")
    enforcement.run(30)
    assert enforcement.told.forced == 1
    assert enforcement.told.events[-1].reason == "GPUPodEvicted"
    assert "its pod has been deleted" in enforcement.told.events[-1].message
    assert lives(pid)


@pytest.mark.failure_case(62)
@pytest.mark.parametrize("answer", [Eviction.FORBIDDEN, Eviction.REFUSED, Eviction.EVICTED])
@pytest.mark.parametrize("mode", ["time-slicing", "mps"])
def test_pod_that_cannot_be_evicted_is_killed_by_signals(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, answer: Eviction, mode: str
) -> None:
    """A right that somebody took away, a deletion that is refused, a year of grace: none makes immune."""
    told = RecordedCluster(answer=answer)
    enforcement = EnforcementFixture(
        tmp_path, two_gpus, process_pool, enforcement={"action": "evict"}, mode=mode, profile=f"{mode}-01234567", told=told
    )
    pid = enforcement.admit_and_begin(1, "stays", 5000, IGNORING_SIGTERM)
    enforcement.run(60)
    assert lives(pid)
    assert ("GPUPodEvicted" in told.reasons("stays")) == (answer is Eviction.EVICTED)
    enforcement.run(30 if answer is Eviction.FORBIDDEN else 120)
    await_end(pid)
    assert enforcement.told.reasons("stays").count("GPUPodEvictionFailed") <= 1


@pytest.mark.failure_case(62)
def test_unreachable_server_does_not_count_as_an_eviction_refusal(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool, mode="mps", profile="mps-01234567", mps=None)
    enforcement_loop.api.is_down = True
    pid = enforcement_loop.enforcement.admit_and_begin(1, "client", 5000)
    enforcement_loop.run(300)
    assert lives(pid)
    assert "GPUPodEvicted" not in enforcement_loop.api.reasons()


def test_job_rejected_by_a_full_queue_is_sent_again() -> None:
    queue, is_over, done = WorkQueue(), threading.Event(), threading.Event()
    queue.send(lambda: _wait(is_over))
    while queue.send(done.set):
        done.clear()
    is_over.set()
    wait_for(lambda: queue.send(done.set))
    assert done.wait(PATIENCE)
