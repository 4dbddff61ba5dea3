"""Every call to the driver failing with every code that it can return, at every time: named, and put right by the next run."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.reporting.outcome import Status, is_failed
from gpushare_node.vendors.driver import Code, DriverError
from tests.node.gpus.gpu_node import A100, SEVEN, GpuNode, policy
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE

MUTATING = (
    "nvmlDeviceSetMigMode",
    "nvmlDeviceCreateGpuInstanceWithPlacement",
    "nvmlGpuInstanceCreateComputeInstance",
    "nvmlGpuInstanceDestroy",
    "nvmlComputeInstanceDestroy",
)
READING = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlGpuInstanceGetComputeInstances",
)
FORMER = (("3g.20gb", 4), ("2g.10gb", 0), ("1g.5gb", 2))
DESIRED = (("3g.20gb", 4), ("1g.5gb", 0), ("1g.5gb", 1), ("1g.5gb", 2))


def run_with_a_fault(folder: Path, call: str, code: Code, after: int) -> None:
    """Two GPUs, one to be divided anew beside a tenant, one to be made whole; faults strike the first alone."""
    node = GpuNode(folder, A100, A100)
    gi = node.stand(0, *FORMER)
    node.stand(1, *SEVEN)
    node.fake_nvml.put(0, 4_000_001, 500, gi=gi[4])
    uuid = node.fake_nvml.mig_uuid(0, gi[4])
    desired = policy(DESIRED, ())
    own = node.hardware()
    sight = own.look(desired)
    node.fake_nvml.fail(call, code, times=1, after=after, gpu=0)
    change = own.change(desired, sight, frozenset(), node.results.append)
    own.close()
    if change.reason is None:
        assert node.stands(0) == set(DESIRED), "what was not in the way of the change is no failure"
    else:
        assert is_failed(node.results) or any(result.status is Status.SKIPPED for result in node.results)
        assert "GPU 0" in change.message
    if change.reason is ConditionReason.ROLLED_BACK:
        assert node.stands(0) == set(FORMER)
    is_session_over = code in (Code.UNINITIALIZED, Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH)
    assert node.fake_nvml.mode(1) == (False, False) or is_session_over, "the other GPU is done"
    node.fake_nvml.heal()
    assert node.run(desired).reason is None, "the next run puts it right"
    assert node.stands(0) == set(DESIRED)
    assert node.fake_nvml.mig_uuid(0, gi[4]) == uuid, "the tenant's instance was never touched"
    assert node.folder.journal() is None


@pytest.mark.parametrize("code", [Code.IN_USE, Code.UNKNOWN, Code.GPU_IS_LOST, Code.UNINITIALIZED, Code.RESET_REQUIRED])
@pytest.mark.parametrize("call", MUTATING)
def test_failing_change_call_is_handled(tmp_path: Path, call: str, code: Code) -> None:
    run_with_a_fault(tmp_path, call, code, 0)


@pytest.mark.parametrize(("number", "code"), list(enumerate(Code)))
def test_every_error_code_is_reported_for_any_failing_call(tmp_path: Path, number: int, code: Code) -> None:
    """The calls take turns; tests/long has every call with every code."""
    calls = MUTATING + READING
    run_with_a_fault(tmp_path, calls[number % len(calls)], code, number // len(calls) % 2)


@pytest.mark.parametrize("call", READING)
def test_failing_read_call_is_handled(tmp_path: Path, call: str) -> None:
    run_with_a_fault(tmp_path, call, Code.UNKNOWN, 0)


@pytest.mark.parametrize("code", [Code.DRIVER_NOT_LOADED, Code.UNKNOWN])
def test_driver_that_never_answers_is_a_survey_error(tmp_path: Path, code: Code) -> None:
    node = GpuNode(tmp_path)
    node.fake_nvml.unload(code)
    with pytest.raises(DriverError):
        node.look(policy(SEVEN))


PROGRAM = """
import signal, sys
from pathlib import Path
from gpushare_node.gpus.hardware import Hardware
from gpushare_node.core.clock import Stopped, SystemClock
from gpushare_node.adapters.host.state_dir import StateDir
from gpushare_node.vendors.nvidia.session import Session
from tests.node.gpus.gpu_node import SEVEN, policy

clock = SystemClock()
signal.signal(signal.SIGTERM, lambda *_: clock.stop())
own = Hardware(open_driver=Session.open, folder=StateDir(Path(sys.argv[1])), clock=clock, policy_digest="digest-1")
try:
    desired = policy(SEVEN)
    own.change(desired, own.look(desired), frozenset(), lambda result: print(result.step, flush=True))
except Stopped:
    sys.exit(143)
"""


def test_sigterm_finishes_the_step_and_the_next_run_resumes(tmp_path: Path) -> None:
    node = GpuNode(tmp_path)
    node.fake_nvml.delay("nvmlGpuInstanceCreateComputeInstance", 0.3)
    root = ROOT
    own = os.environ | node.fake_nvml.environment | {"PYTHONPATH": f"{root}:{root / 'node-runtime'}:{root / 'compiler'}"}
    command = [sys.executable, "-c", PROGRAM, str(node.folder.path)]
    with subprocess.Popen(command, env=own, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        while not program.stdout.readline().startswith("create"):
            assert program.poll() is None
        program.send_signal(signal.SIGTERM)
        program.communicate(timeout=PATIENCE)
    assert program.returncode == 143
    assert 0 < len(node.fake_nvml.instances(0)) < 7
    assert all(computes == 1 for *_, computes in node.fake_nvml.instances(0)), "the step was finished"
    journal = StateDir(node.folder.path).journal()
    assert journal is not None
    assert journal.is_changing
    node.fake_nvml.heal()
    assert node.run(policy(SEVEN)).reason is None
    assert node.stands(0) == set(SEVEN)
    assert node.folder.journal() is None
