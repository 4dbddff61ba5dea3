"""Evaluator: the guard with its state between two cycles, the offenders that no signal reaches, and what is stored of debts."""

from collections.abc import Collection

from gpushare_node.adapters.host.state_files import DebtRecord
from gpushare_node.contract.struct import replace
from gpushare_node.guard.debts import Debt, Violation
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import Cap, CapAction, ContainerId, GuardInput, Owner, Settings
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


Debts = tuple[DebtRecord, ...]


def keep_debts(history: GuardState) -> Debts:
    """Return the debts of containers that have offended, and those of their namespaces."""
    containers = [
        DebtRecord(
            namespace=violation.owner.namespace,
            device=unit.device,
            milliseconds=round(violation.debt.seconds * 1000),
            place=violation.owner.uid,
            pod_uid=unit.container.pod_uid,
            container=unit.container.container,
            offences=violation.offences,
            limit_bytes=violation.cap.limit_bytes,
            action=violation.cap.action.value,
        )
        for unit, violation in history.violations.items()
        if violation.offences
    ]
    owing = {(container.namespace, container.device) for container in containers}
    namespaces = [
        DebtRecord(namespace=namespace, device=device, milliseconds=round(debt.seconds * 1000))
        for (namespace, device), debt in history.namespaces.items()
        if (namespace, device) in owing
    ]
    return (*containers, *namespaces)


def are_news(debts: Debts, former: Debts) -> bool:
    """Whether other containers owe, or one has offended again; how much they owe is stored with it."""
    return {(debt.place, debt.device, debt.offences) for debt in debts} != {
        (one.place, one.device, one.offences) for one in former
    }


def restore_debts(debts: Debts, now: float) -> GuardState:
    """Return the state with which a program begins. No time is known to have passed since."""
    violations = {}
    for one in debts:
        if one.place:
            cap = Cap(bytes=one.limit_bytes, action=CapAction(one.action))
            violations[Unit(ContainerId(one.pod_uid, one.container), one.device)] = Violation(
                since=now,
                known_at=now,
                cap=cap,
                owner=Owner(one.namespace, one.place),
                debt=Debt(seconds=one.milliseconds / 1000),
                samples=1,
                offences=one.offences,
            )
    namespaces = {(debt.namespace, debt.device): Debt(seconds=debt.milliseconds / 1000) for debt in debts if not debt.place}
    return GuardState(violations=violations, namespaces=namespaces)
