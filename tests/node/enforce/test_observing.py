"""Enforcement where nothing may be enforced: caps are compared as ever, steps are counted, and each offence is logged once."""

import logging
from pathlib import Path

import pytest

from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import OLD, EnforcementFixture, lives
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool

DRY = Settings(dry_run=True)
"""What the wiring sets for a policy that observes."""


def observing(folder: Path, two_gpus: FakeNvml, process_pool: ProcessPool, action: str = "kill") -> EnforcementFixture:
    return EnforcementFixture(folder, two_gpus, process_pool, settings=DRY, adoption="observe", enforcement={"action": action})


@pytest.mark.parametrize(("action", "step"), [("kill", "kill"), ("evict", "evict")])
def test_observe_counts_a_container_over_its_cap_once_without_killing_it(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, action: str, step: str
) -> None:
    enforcement = observing(tmp_path, two_gpus, process_pool, action)
    pid = enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement.admit_and_begin(2, "modest", 1000)
    enforcement.run(60)
    assert lives(pid)
    assert enforcement.told.evicted == []
    assert f'would_act_total{{step="{step}",reason="over-cap"}} 1' in enforcement.metric("would_act_total{")
    assert enforcement.metric("containers_over_cap") == ["containers_over_cap 1"]
    assert enforcement.metric("kills_total{") == []


def test_observe_compares_containers_older_than_the_runtime(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    """Under enforce it would be exempt: what is counted is what its successors will meet."""
    enforcement = observing(tmp_path, two_gpus, process_pool)
    enforcement.admit_and_begin(1, "old", 5000, started={f"{1:064x}": OLD})
    enforcement.run(60)
    assert 'would_act_total{step="kill",reason="over-cap"} 1' in enforcement.metric("would_act_total{")
    assert not (tmp_path / "state" / "first-caps.json").exists()


def test_observe_counts_a_container_on_an_unallocated_gpu(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    enforcement = observing(tmp_path, two_gpus, process_pool)
    enforcement.admit(1, "stray", gpu=0)
    pid = enforcement.begin(1, 500, gpu=1)
    enforcement.run(60)
    assert lives(pid)
    assert 'would_act_total{step="kill",reason="not-allocated"} 1' in enforcement.metric("would_act_total{")


def test_each_offence_is_logged_once(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpushare.enforce")
    enforcement = observing(tmp_path, two_gpus, process_pool)
    pid = enforcement.admit_and_begin(1, "greedy", 5000)

    def said() -> int:
        return sum("GPUMemoryOverCap" in record.getMessage() for record in caplog.records)

    enforcement.run(1300)
    assert said() == 1
    two_gpus.put(0, pid, 100)
    enforcement.run(300)
    two_gpus.put(0, pid, 5000)
    enforcement.run(30)
    assert said() == 2
