"""The driver's own limits: where they are set, and when they are lifted."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.core.structs import replace
from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import EnforcementFixture, await_end
from tests.node.enforce.rig import Rig
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool


@pytest.mark.failure_case(55)
def test_the_driver_holds_caps_where_it_can_until_processes_are_gone(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    two.offer_limits()
    two.load()
    rig = Rig(tmp_path, two, started)
    pid = rig.stage.admit_and_begin(1, "modest", 3000)
    rig.run(2)
    cgroup = rig.stage.processes.look([pid])[pid].cgroup
    assert two.limits(0) == {cgroup: 4096 << 20}
    assert 'enforcement_tier{tier="driver"} 1' in rig.stage.metric("enforcement_tier{")
    rig.stage.list.known = (replace(rig.stage.list.known[0], is_terminating=True),)
    rig.run(2)
    assert two.limits(0) == {cgroup: 4096 << 20}
    rig.stage.list.known = ()
    rig.run(2)
    assert two.limits(0) == {cgroup: 4096 << 20}
    two.take(0, pid)
    rig.run(2)
    assert cgroup not in two.limits(0) or two.limits(0)[cgroup] == (1 << 64) - 1


@pytest.mark.parametrize("changes", [{"enforcement": {"mechanism": "watcher"}}, {"enforcement": {"action": "warn"}}])
def test_the_driver_holds_no_cap_that_the_policy_does_not_want_held_so(
    tmp_path: Path, two: FakeNvml, started: ProcessPool, changes: dict[str, Any]
) -> None:
    two.offer_limits()
    two.load()
    rig = Rig(tmp_path, two, started, **changes)
    rig.stage.admit_and_begin(1, "modest", 3000)
    rig.run(3)
    assert two.limits(0) == {}


def test_a_driver_that_refuses_a_limit_leaves_the_cap_to_the_watcher(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    two.offer_limits()
    two.load()
    two.fail("nvmlDeviceSetMemoryLimits_v1", 3)
    rig = Rig(tmp_path, two, started)
    pid = rig.stage.admit_and_begin(1, "greedy", 5000)
    rig.run(6)
    await_end(pid)
    assert rig.stage.metric("enforcement_tier{") == ['enforcement_tier{tier="watcher"} 1']


@pytest.mark.failure_case(66)
def test_a_dry_run_sets_no_limit_of_the_drivers(tmp_path: Path, two: FakeNvml, started: ProcessPool) -> None:
    two.offer_limits()
    two.load()
    stage = EnforcementFixture(tmp_path, two, started, settings=Settings(dry_run=True))
    stage.admit_and_begin(1, "modest", 3000)
    stage.run(3)
    assert two.limits(0) == {}


def test_the_drivers_limits_are_lifted_when_the_node_leaves_and_only_then(
    tmp_path: Path, two: FakeNvml, started: ProcessPool
) -> None:
    two.offer_limits()
    two.load()
    stage = EnforcementFixture(tmp_path, two, started)
    stage.admit_and_begin(1, "modest", 3000)
    stage.run(3)
    assert set(two.limits(0).values()) == {4096 << 20}
    stage.enforcer.close()
    assert set(two.limits(0).values()) == {4096 << 20}
    stage.start()
    stage.run(3)
    stage.enforcer.close(is_leaving=True)
    assert set(two.limits(0).values()) <= {(1 << 64) - 1}
