"""Evaluator: the guard with its state between two cycles, and the offenders that no signal reaches."""

from collections.abc import Collection

from gpushare_node.contract.struct import replace
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import GuardInput, Settings
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, Verdict

_SUSPENDED_SECONDS = 300
"""How long an offender whose processes cannot be signalled is suspended: the next signal would not reach them either."""


class Evaluator:
    """Evaluates one cycle after another. For one thread."""

    def __init__(self, settings: Settings, history: GuardState | None = None) -> None:
        self.history = history or GuardState()
        self.settings = settings
        self._suspended: dict[Unit, float] = {}
        self._is_ending = False

    def evaluate(self, inputs: GuardInput, now: float) -> tuple[Verdict, ...]:
        """Return the guard's verdicts on this input."""
        due = [unit for unit, at in self._suspended.items() if now - at >= _SUSPENDED_SECONDS]
        for unit in due:
            del self._suspended[unit]
        self._mark_settled(due, is_settled=False)
        verdicts, self.history = evaluate(inputs, self.history, now, self.settings)
        if not self._is_ending:
            return verdicts
        # The budgets are zero because the program ends, not because there are too many offenders.
        return tuple(
            verdict for verdict in verdicts if not (isinstance(verdict, Anomaly) and verdict.reason is AnomalyKind.BUDGET_SPENT)
        )

    @property
    def is_counting(self) -> bool:
        """Whether a container owes: shorter intervals measure better for how long a container is over its cap."""
        return bool(self.history.violations or self.history.namespaces)

    def suspend(self, units: Collection[Unit], now: float) -> None:
        """Suspend offenders that cannot be terminated: others do not wait for their end, and for a while no step is taken."""
        if units:
            targets = {unit: target for unit, target in self.history.targets.items() if unit not in units}
            self.history = replace(self.history, targets=targets)
            self._mark_settled(units, is_settled=True)
            self._suspended.update(dict.fromkeys(units, now))

    def stop_selecting(self) -> None:
        """Continue with the present targets, and select no others: the program ends."""
        self.settings = replace(self.settings, kills_per_minute=0)
        self._is_ending = True

    def _mark_settled(self, units: Collection[Unit], *, is_settled: bool) -> None:
        if units:
            self.history = replace(
                self.history,
                violations={
                    unit: violation._replace(is_settled=is_settled) if unit in units else violation
                    for unit, violation in self.history.violations.items()
                },
            )
