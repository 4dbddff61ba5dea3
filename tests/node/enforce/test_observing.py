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


def observing(folder: Path, two: FakeNvml, started: ProcessPool, action: str = "kill") -> EnforcementFixture:
    return EnforcementFixture(folder, two, started, settings=DRY, adoption="observe", enforcement={"action": action})


@pytest.mark.parametrize(("action", "step"), [("kill", "kill"), ("evict", "evict")])
def test_a_container_over_its_cap_is_counted_once_and_lives(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, action: str, step: str
) -> None:
    stage = observing(tmp_path, two, started, action)
    pid = stage.admit_and_begin(1, "greedy", 5000)
    stage.admit_and_begin(2, "modest", 1000)
    stage.run(60)
    assert lives(pid)
    assert stage.told.evicted == []
    assert f'would_act_total{{step="{step}",reason="over-cap"}} 1' in stage.metric("would_act_total{")
    assert stage.metric("containers_over_cap") == ["containers_over_cap 1"]
    assert stage.metric("kills_total{") == []


def test_a_container_that_ran_before_the_runtime_is_compared_like_any_other(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    """Under enforce it would be exempt: what is counted is what its successors will meet."""
    stage = observing(tmp_path, two, started)
    stage.admit_and_begin(1, "old", 5000, started={f"{1:064x}": OLD})
    stage.run(60)
    assert 'would_act_total{step="kill",reason="over-cap"} 1' in stage.metric("would_act_total{")
    assert not (tmp_path / "state" / "first-caps.json").exists()


def test_a_container_on_a_gpu_of_others_is_counted_as_such(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    stage = observing(tmp_path, two, started)
    stage.admit(1, "stray", gpu=0)
    pid = stage.begin(1, 500, gpu=1)
    stage.run(60)
    assert lives(pid)
    assert 'would_act_total{step="kill",reason="not-allocated"} 1' in stage.metric("would_act_total{")


def test_an_offence_is_logged_once_and_the_next_one_again(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "gpushare.enforce")
    stage = observing(tmp_path, two, started)
    pid = stage.admit_and_begin(1, "greedy", 5000)

    def said() -> int:
        return sum("GPUMemoryOverCap" in record.getMessage() for record in caplog.records)

    stage.run(1300)
    assert said() == 1
    two.put(0, pid, 100)
    stage.run(300)
    two.put(0, pid, 5000)
    stage.run(30)
    assert said() == 2
