"""Lives of a node that changes between the device plugin and DRA, made up at random: no GPU is ever offered by both.

`dra_node` holds what must never happen, and `chaos_scenario` what may beside what is here.
"""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gpushare_node.contract.names import BACKEND_LABEL
from gpushare_node.contract.policy import Policy
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.reporting.outcome import Outcome
from tests.node.reconcile.chaos_scenario import ChaosRun
from tests.node.reconcile.dra_node import DraNode, by_claims

QUICK, LOT = 12, 12
"""tests/long goes on behind the quick ones."""


class DraRun(ChaosRun):
    """One run. In some of them somebody writes the label by which the runtime permits the back ends."""

    node: DraNode

    def make_node(self, folder: Path, *gpus: str) -> DraNode:
        return DraNode(folder, self.random, *gpus)

    def new_policy(self) -> Policy:
        made = super().new_policy()
        return by_claims(made) if self.random.random() < 0.6 else made

    def simulate(self) -> None:
        if self.random.random() < 0.7:
            self.run()
            for _ in range(self.random.randint(0, 3)):
                self.tenant_comes()
        super().simulate()

    def moves(self) -> dict[Callable[[], str | None], int]:
        return super().moves() | {self.time_passes: 2, self.driver_changes: 1, self.back_end_is_written: 1}

    def time_passes(self) -> None:
        if not self.node.is_dead:
            self.node.wait(self.random.choice((1, 5, 40)))

    def driver_changes(self) -> None:
        self.node.is_driver_deaf = self.random.random() < 0.5
        self.node.may_be_served = self.random.random() < 0.5

    def back_end_is_written(self) -> None:
        if self.random.random() < 0.3:
            self.node.was_tampered = self.node.is_label_written = True
            self.node.label(**{BACKEND_LABEL: self.random.choice(("none", "dra", None))})

    def resolve(self, outcome: Outcome) -> None:
        if outcome.reason is not ConditionReason.WRONG_SLICES:
            super().resolve(outcome)
            return
        assert "If the driver's pod is deleted, it reads the GPUs again." in outcome.reason.value.remedy
        self.node.restart_driver()

    def heal(self) -> None:
        self.node.is_driver_deaf = False
        super().heal()
        self.node.wait(10)  # The driver ends the claims of pods that have gone.


def live_through(folder: Path, numbers: range) -> None:
    for number in numbers:
        run = DraRun(folder / str(number), number)
        try:
            run.simulate()
        except BaseException as error:
            raise AssertionError(f"run {number}: {error!r}\n" + "\n".join(run.happened)) from error
        shutil.rmtree(folder / str(number))


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSHARE_FAKE_NVML", "")


@pytest.mark.parametrize("first", range(0, QUICK, LOT))
def test_random_lives_with_both_back_ends(tmp_path: Path, first: int) -> None:
    live_through(tmp_path, range(first, first + LOT))
