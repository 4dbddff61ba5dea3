"""What people are told: not too often, nothing false, and the figures."""

import pytest

from gpushare_node.enforce.loop import Loop
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from tests.node.enforce.enforcement import EnforcementFixture, lives
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import IGNORING_SIGTERM


def test_shutdown_does_not_report_a_kill_breaker(enforcement: EnforcementFixture) -> None:
    enforcement.admit(1, "deaf")
    enforcement.admit(2, "next", 1)
    enforcement.begin(1, 5000, IGNORING_SIGTERM)
    enforcement.run(2)
    enforcement.begin(2, 5000, gpu=1)
    enforcement.run(3)
    Loop(enforcer=enforcement.enforcer, monitor=None, clock=enforcement.clock, pause=enforcement.clock.sleep)._finish()
    assert "GPUKillsPaused" not in enforcement.told.reasons()
    assert enforcement.metric("kill_breaker_open ") == ["kill_breaker_open 0"]


@pytest.mark.failure_case(33)
def test_container_oscillating_around_its_cap_is_reported_once_a_minute(enforcement: EnforcementFixture) -> None:
    pid = enforcement.admit_and_begin(1, "wave", 5000)
    for _ in range(10):
        enforcement.run(4)
        enforcement.fake_nvml.put(0, pid, 1000)
        enforcement.run(9)
        enforcement.fake_nvml.put(0, pid, 5000)
    assert lives(pid)
    assert enforcement.told.reasons("wave") == ["GPUMemoryOverCap"] * 2


def test_metrics_page_is_rendered_at_most_once_a_second() -> None:
    made: list[int] = []
    metrics = EnforcementMetrics(Registry())

    def gather() -> tuple[()]:
        made.append(1)
        return ()

    metrics.registry.callback_gauge("test", "Counts.", read=gather)
    pages = {metrics.page() for _ in range(200)}
    assert len(pages) == 1
    assert len(made) <= 2


def test_versions_and_existing_mig_instances_are_metrics(enforcement: EnforcementFixture, two_gpus: FakeNvml) -> None:
    two_gpus.set_mode(0, current=True)
    for start in (0, 2):
        two_gpus.add_instance(0, 14, start)
    enforcement.run(1)
    assert enforcement.metric("build_info{")[0].endswith('driver="580.95.05"} 1')
    assert enforcement.metric("mig_instances{") == [f'mig_instances{{gpu="{two_gpus.uuid(0)}",profile="2g.10gb"}} 2']
