"""Runs killed at every effect, and many lives of a node in which anything happens."""

from pathlib import Path

import pytest

from tests.node.reconcile import test_dra_chaos as dra
from tests.node.reconcile.test_chaos import LOT, QUICK, die_and_recover, live_through
from tests.support.fake_api.server import ApiServer

MANY = 500


@pytest.mark.failure_case(16)
def test_run_killed_at_every_effect_recovers(tmp_path: Path) -> None:
    for number in range(100):
        with ApiServer() as api:
            if not die_and_recover(tmp_path / str(number), api, number):
                assert number > 25
                return
    pytest.fail("the run never came to its end")


@pytest.mark.parametrize("first", range(QUICK, MANY, LOT))
def test_random_faults_in_many_runs_harm_no_process(tmp_path: Path, first: int) -> None:
    live_through(tmp_path, range(first, first + LOT))


@pytest.mark.parametrize("first", range(dra.QUICK, MANY, dra.LOT))
def test_random_lives_with_both_back_ends_in_many_runs(tmp_path: Path, first: int) -> None:
    dra.live_through(tmp_path, range(first, first + dra.LOT))
