"""Evaluator: the guard with its state and its last verdicts: if nothing relevant has changed, the guard is not called.

On most nodes, most cycles read the same as the one before. The guard is pure, and time matters to it only while a container is
over its cap, is being terminated or has an open violation, or while an allocated device has not shown a process yet. In every
other case equal inputs give equal verdicts, and for GPUs that differ only in memory use `guard.fast_path` has the verdicts:
with one offender on a full node, the guard evaluates only the offender's GPU.
"""

from collections.abc import Callable, Collection
from functools import partial

from gpushare_node.core.structs import replace
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.fast_path import FastPath, Within, container_status
from gpushare_node.guard.inputs import GuardInput, Settings
from gpushare_node.guard.state import GuardState
from gpushare_node.guard.verdicts import Anomaly, AnomalyKind, ContainerStatus, Verdict

_SUSPENDED_SECONDS = 300
"""How long an offender whose processes cannot be signalled is suspended: the next signal would not reach them either."""


class Evaluator:
    """Evaluates one cycle after another. For one thread."""

    def __init__(self, settings: Settings) -> None:
        self.history = GuardState()
        self.settings = settings
        self._reading: GuardInput | None = None
        self._verdicts: tuple[Verdict, ...] = ()
        self._fast_path = FastPath()
        self._unlearned: Collection[str] | None = None
        self._has_strays = False
        self._is_lasting = False
        self.observe: Callable[[], list[ContainerStatus]] = list
        """Return the status of every container at the last evaluation. Computed at the call, from any thread, at any time."""
        self._suspended: dict[Unit, float] = {}
        self._is_ending = False

    def evaluate(self, inputs: GuardInput, now: float) -> tuple[Verdict, ...]:
        """Return the guard's verdicts on this input; GPUs on the fast path have no ContainerStatus: `observe` returns all.

        Identities and grants that have not changed must be the same objects as before.
        """
        self._take_up(now)
        former, history = self._reading, self.history
        has_moved = history.now is None or now > history.now
        # Without these the passing of time changes no verdict, provided that the clock advances.
        is_idle = has_moved and not (history.violations or history.targets or history.empty)
        if is_idle and self._is_lasting and former is not None and self._is_equal(inputs, former):
            self._advance(now)
        else:
            within = self._add_up(inputs, now)
            is_known = len(within) == len(inputs.devices) and former is not None and _gpus(inputs) == _gpus(former)
            if is_idle and is_known:
                self._verdicts = tuple(report for gpu in within.values() for report in gpu.frame.reports)
                self.observe = partial(container_status, inputs, (), within)
                self._advance(now)
            else:
                self._evaluate(inputs, now, within)
            # While the clock does not advance, no GPU is known to be within its caps; and a target's end is reported only once.
            self._is_lasting = has_moved and not history.targets
        self._reading = inputs
        if self._is_ending:
            # The budgets are zero because the program ends, not because there are too many offenders.
            return tuple(
                one for one in self._verdicts if not (isinstance(one, Anomaly) and one.reason is AnomalyKind.BUDGET_SPENT)
            )
        return self._verdicts

    @property
    def is_counting(self) -> bool:
        """Whether a container has an open violation: its time over the cap counts, and shorter intervals measure it better."""
        return bool(self.history.violations)

    def suspend(self, units: Collection[Unit], now: float) -> None:
        """Suspend offenders that cannot be terminated: others do not wait for their end, and for a while no step is taken."""
        if not units:
            return
        targets = {unit: target for unit, target in self.history.targets.items() if unit not in units}
        self.history = replace(self.history, targets=targets)
        self._settle(units, is_settled=True)
        self._suspended.update(dict.fromkeys(units, now))

    def stop_selecting(self) -> None:
        """Continue with the present targets, and select no others: the program ends."""
        self.settings = replace(self.settings, kills_per_minute=0)
        self._is_ending = True
        self._reading = None

    def _take_up(self, now: float) -> None:
        """Resume offenders whose suspension has expired."""
        due = [unit for unit, at in self._suspended.items() if now - at >= _SUSPENDED_SECONDS]
        for unit in due:
            del self._suspended[unit]
        if due:
            self._settle(due, is_settled=False)

    def _settle(self, units: Collection[Unit], *, is_settled: bool) -> None:
        violations = {
            unit: violation._replace(is_settled=is_settled) if unit in units else violation
            for unit, violation in self.history.violations.items()
        }
        self.history = replace(self.history, violations=violations)

    def _is_equal(self, inputs: GuardInput, former: GuardInput) -> bool:
        return (
            inputs.identities is former.identities
            and inputs.grants is former.grants
            and (inputs.is_allocation_known == former.is_allocation_known or not self._has_strays)
            and inputs.devices == former.devices
        )

    def _add_up(self, inputs: GuardInput, now: float) -> dict[str, Within]:
        """Return the GPUs whose verdicts are known without the guard: none if the clock has stopped or the guard is paused."""
        former, history = self._reading, self.history
        if former is None or inputs.identities is not former.identities or inputs.grants is not former.grants:
            self._fast_path, self._unlearned = FastPath(), None
            return {}
        if self._unlearned is not None:
            self._fast_path.learn(former, self._verdicts, self._unlearned)
            self._unlearned = None
        is_odd = history.paused_since is not None or history.now is None or now <= history.now
        return {} if is_odd else self._fast_path.add_up(inputs, self.settings)

    def _evaluate(self, inputs: GuardInput, now: float, within: dict[str, Within]) -> None:
        """Have the guard evaluate all GPUs except those within their caps that have no violation, target or anomaly."""
        history = self.history
        busy = {unit.device for unit in (*history.violations, *history.targets)}
        within = {
            gpu: one for gpu, one in within.items()
            if not one.frame.reports and busy.isdisjoint(one.frame.places) and history.seen.issuperset(one.frame.places)
        }
        self._verdicts, self.history = evaluate(inputs, history, now, self.settings, within)
        self._has_strays = any(isinstance(one, Anomaly) and one.reason is AnomalyKind.STRAY for one in self._verdicts)
        self._unlearned = within.keys()
        self.observe = partial(container_status, inputs, self._verdicts, within)

    def _advance(self, now: float) -> None:
        self.history = replace(self.history, now=max(now, self.history.now or now))


def _gpus(inputs: GuardInput) -> list[str]:
    return [device.uuid for device in inputs.devices]
