"""Lives of a node, made up at random: whatever happens to it, nobody is harmed, nothing is lied about, and it recovers.

`chaos_node` holds what must never happen, at every change; `chaos_scenario` what may, and how each run must end. A failure
reports the number of the run, and what has happened in it.
"""

import shutil
from pathlib import Path
from random import Random

import pytest

from gpushare_node.contract.reasons import ConditionReason
from tests.node.reconcile.chaos_adapters import run_until_killed
from tests.node.reconcile.chaos_scenario import ChaosRun
from tests.node.reconcile.loop_node import DEPLOY, TWO, LoopNode, mig
from tests.support.fake_api.server import ApiServer

QUICK, LOT = 25, 25
"""tests/long goes on behind the quick ones."""


def live_through(folder: Path, numbers: range) -> None:
    for number in numbers:
        chaos_run = ChaosRun(folder / str(number), number)
        try:
            chaos_run.simulate()
        except BaseException as error:
            what = "\n".join(chaos_run.happened)
            raise AssertionError(f"run {number}: {error!r}\n{what}") from error
        shutil.rmtree(folder / str(number))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")  # so that what loading the GPUs sets is undone


@pytest.mark.parametrize("first", range(0, QUICK, LOT))
def test_random_faults_harm_no_process_and_the_node_recovers(tmp_path: Path, first: int) -> None:
    live_through(tmp_path, range(first, first + LOT))


def die_and_recover(folder: Path, api: ApiServer, number: int) -> bool:
    """A tenant works on what both layouts have while the program is really killed. Whether it came so far as that."""
    node = LoopNode(folder, api)
    desired = mig((("3g.20gb", 4), *(("1g.5gb", start) for start in range(4))), key="mig-00000002")
    node.run(mig(TWO))
    gi = node.gpus.gi_at(0, 4)
    uuid = node.fake_nvml.mig_uuid(0, gi)
    node.tenant("tenant", uuid, "nvidia.com/mig-3g.20gb")
    node.fake_nvml.put(0, 4_000_001, 100, gi=gi)
    is_killed = run_until_killed(node, desired, number)
    outcome = node.run(desired)
    assert outcome.reason is ConditionReason.READY, (number, outcome.message)
    assert node.fake_nvml.mig_uuid(0, gi) == uuid, number
    assert (node.taints(), node.labels()[DEPLOY], node.holds_slot(), node.folder.journal()) == (set(), "true", False, None)
    node.fake_nvml.forget_calls()
    api.forget_requests()
    assert node.run(desired).reason is ConditionReason.READY
    assert (node.fake_nvml.calls(), api.writes()) == ([], [])
    return is_killed


@pytest.mark.failure_case(16)
@pytest.mark.parametrize("number", Random(16).sample(range(30), 6))
def test_run_killed_at_any_effect_converges_without_harming_the_tenant(tmp_path: Path, api: ApiServer, number: int) -> None:
    assert die_and_recover(tmp_path, api, number)
