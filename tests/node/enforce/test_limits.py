"""The driver's own limits: where they are set, and when they are lifted."""

from pathlib import Path
from typing import Any

import pytest

from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import Settings
from tests.node.enforce.enforcement import EnforcementFixture, await_end
from tests.node.enforce.enforcement_loop import EnforcementLoop
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool


@pytest.mark.failure_case(55)
def test_driver_memory_limits_are_set_until_the_processes_exit(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    two_gpus.offer_limits()
    two_gpus.load()
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool)
    enforcement_loop.run(2)
    assert 'enforcement_tier{tier="watcher"} 1' in enforcement_loop.enforcement.metric("enforcement_tier{")
    assert 'enforcement_tier{tier="driver-set"} 1' not in enforcement_loop.enforcement.metric("enforcement_tier{")
    pid = enforcement_loop.enforcement.admit_and_begin(1, "modest", 3000)
    enforcement_loop.run(2)
    cgroup = enforcement_loop.enforcement.processes.look([pid])[pid].cgroup
    assert two_gpus.limits(0) == {cgroup: 4096 << 20}
    assert 'enforcement_tier{tier="driver-set"} 1' in enforcement_loop.enforcement.metric("enforcement_tier{")
    enforcement_loop.enforcement.list.known = (replace(enforcement_loop.enforcement.list.known[0], is_terminating=True),)
    enforcement_loop.run(2)
    assert two_gpus.limits(0) == {cgroup: 4096 << 20}
    enforcement_loop.enforcement.list.known = ()
    enforcement_loop.run(2)
    assert two_gpus.limits(0) == {cgroup: 4096 << 20}
    two_gpus.take(0, pid)
    enforcement_loop.run(2)
    assert cgroup not in two_gpus.limits(0) or two_gpus.limits(0)[cgroup] == (1 << 64) - 1


@pytest.mark.parametrize("changes", [{"enforcement": {"mechanism": "watcher"}}, {"enforcement": {"action": "warn"}}])
def test_driver_memory_limits_are_not_set_unless_the_policy_allows(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool, changes: dict[str, Any]
) -> None:
    two_gpus.offer_limits()
    two_gpus.load()
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool, **changes)
    enforcement_loop.enforcement.admit_and_begin(1, "modest", 3000)
    enforcement_loop.run(3)
    assert two_gpus.limits(0) == {}


def test_a_driver_that_refuses_a_limit_leaves_the_cap_to_the_watcher(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    two_gpus.offer_limits()
    two_gpus.load()
    two_gpus.fail("nvmlDeviceSetMemoryLimits_v1", 3)
    enforcement_loop = EnforcementLoop(tmp_path, two_gpus, process_pool)
    pid = enforcement_loop.enforcement.admit_and_begin(1, "greedy", 5000)
    enforcement_loop.run(6)
    await_end(pid)
    assert enforcement_loop.enforcement.metric("enforcement_tier{") == ['enforcement_tier{tier="watcher"} 1']


@pytest.mark.failure_case(66)
def test_a_dry_run_sets_no_limit_of_the_drivers(tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool) -> None:
    two_gpus.offer_limits()
    two_gpus.load()
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool, settings=Settings(dry_run=True))
    enforcement.admit_and_begin(1, "modest", 3000)
    enforcement.run(3)
    assert two_gpus.limits(0) == {}


def test_the_drivers_limits_are_lifted_when_the_node_leaves_and_only_then(
    tmp_path: Path, two_gpus: FakeNvml, process_pool: ProcessPool
) -> None:
    two_gpus.offer_limits()
    two_gpus.load()
    enforcement = EnforcementFixture(tmp_path, two_gpus, process_pool)
    enforcement.admit_and_begin(1, "modest", 3000)
    enforcement.run(3)
    assert set(two_gpus.limits(0).values()) == {4096 << 20}
    enforcement.enforcer.close()
    assert set(two_gpus.limits(0).values()) == {4096 << 20}
    enforcement.start()
    enforcement.run(3)
    enforcement.enforcer.close(is_leaving=True)
    assert set(two_gpus.limits(0).values()) <= {(1 << 64) - 1}
