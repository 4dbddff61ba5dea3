"""A call into the driver that does not come back: the run ends with a reason, and the program can end."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpushare_node.adapters.host import programs
from gpushare_node.adapters.host.programs import Program
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.core.clock import SystemClock
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import Code, DriverError, partitionable
from gpushare_node.vendors.nvidia.session import Session
from tests.node.gpus.gpu_node import A100
from tests.node.reconcile.loop_node import SEVEN, TWO, LoopNode, mig
from tests.support.fake_api.server import ApiServer
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import needs_root
from tests.support.waiting import PATIENCE, wait_for

DEADLINE = 3.0


class HangingNode(LoopNode):
    """Its runtime waits some seconds for the driver, not a minute."""

    def __init__(self, folder: Path, api: ApiServer) -> None:
        super().__init__(folder, api, A100, A100)
        self.bounded = BoundedDriver(Session.open, clock=self.clock, deadline_seconds=DEADLINE, change_seconds=DEADLINE)

    def _hardware(self, digest: str) -> Hardware:
        own = super()._hardware(digest)
        own._connection._open = self.bounded.open
        return own


@pytest.fixture
def node(tmp_path: Path, api: ApiServer):
    made = HangingNode(tmp_path, api)
    yield made
    made.fake_nvml.heal()


def test_hanging_survey_times_out_and_further_calls_are_refused(fake_nvml: FakeNvml, given_up: list[float]) -> None:
    bounded = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=DEADLINE, change_seconds=DEADLINE)
    driver = bounded.open()
    assert len(driver.survey()) == 8
    fake_nvml.delay("nvmlDeviceGetCount_v2", 600)
    for ask in (driver.survey, driver.versions, bounded.open, driver.close):
        with pytest.raises(DriverError) as caught:
            ask()
        assert caught.value.code == Code.TIMEOUT
    assert given_up == [DEADLINE], "only the first one is waited for"


def test_new_session_opens_after_the_hung_call_returns(fake_nvml: FakeNvml) -> None:
    bounded = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=DEADLINE, change_seconds=DEADLINE)
    driver = bounded.open()
    fake_nvml.delay("nvmlDeviceGetCount_v2", 600)
    with pytest.raises(DriverError):
        driver.survey()
    fake_nvml.heal()

    def opens() -> bool:
        try:
            return len(bounded.open().survey()) == 8
        except DriverError:
            return False

    wait_for(opens)
    with pytest.raises(DriverError):
        driver.survey()


def test_driver_error_is_raised_unchanged(fake_nvml: FakeNvml) -> None:
    driver = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=60).open()
    fake_nvml.fail("nvmlDeviceSetMigMode", 4)
    with pytest.raises(DriverError) as caught:
        partitionable(driver).set_mig(fake_nvml.uuid(0), enabled=True)
    assert caught.value.code == Code.NO_PERMISSION


def test_driver_that_hangs_before_a_change_is_reported(node: HangingNode) -> None:
    node.fake_nvml.delay("nvmlDeviceGetCount_v2", 600)
    outcome = node.run(mig(SEVEN, SEVEN))
    assert (outcome.reason, node.condition()) == (ConditionReason.DRIVER_HUNG, "DriverHung")
    assert node.fake_nvml.calls() == []


def test_driver_that_hangs_in_a_change_is_reported_and_the_next_run_finishes(node: HangingNode) -> None:
    node.run(mig(TWO, TWO))
    node.fake_nvml.delay("nvmlGpuInstanceCreateComputeInstance", 60, after=3)
    outcome = node.run(mig(SEVEN, SEVEN, key="mig-00000002"))
    assert outcome.reason is ConditionReason.DRIVER_HUNG, outcome.message
    assert node.taints(), "half of a layout takes no pods"
    journal = node.folder.journal()
    assert journal is not None
    assert journal.is_changing
    assert node.run(mig(SEVEN, SEVEN, key="mig-00000002")).reason is ConditionReason.DRIVER_HUNG
    node.fake_nvml.heal()
    wait_for(lambda: not node.bounded._calls.late())
    assert node.run(mig(SEVEN, SEVEN, key="mig-00000002")).reason is ConditionReason.READY
    assert (node.taints(), node.gpus.stands(0), node.gpus.stands(1)) == (set(), set(SEVEN), set(SEVEN))


def test_the_program_ends_while_a_call_hangs(fake_nvml: FakeNvml) -> None:
    code = """
from gpushare_node.core.clock import SystemClock
from gpushare_node.vendors.bounded_driver import BoundedDriver
from gpushare_node.vendors.driver import DriverError
from gpushare_node.vendors.nvidia.session import Session
bounded = BoundedDriver(Session.open, clock=SystemClock(), deadline_seconds=60)
driver = bounded.open()
bounded._deadline_seconds = 0.2
try:
    driver.survey()
except DriverError as error:
    print(error.code)
"""
    fake_nvml.delay("nvmlDeviceGetCount_v2", 600)
    program = subprocess.run(
        [sys.executable, "-c", code], env=fake_nvml.environment, capture_output=True, text=True, check=True, timeout=PATIENCE
    )
    assert program.stdout == "10\n"


@needs_root
def test_unkillable_host_program_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[subprocess.Popen[bytes]] = []
    kill = subprocess.Popen.kill
    monkeypatch.setattr(subprocess.Popen, "kill", lambda own: killed.append(own))  # noqa: PLW0108 - binds
    monkeypatch.setattr(programs, "_DEATH_SECONDS", 0.1)
    assert Program(root=Path("/"), path="/bin/sleep").run(("30",), 0.3) == "sleep did not finish within 0.3 seconds"
    (one,) = killed
    kill(one)
    one.wait()
