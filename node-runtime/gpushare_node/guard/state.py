"""The guard's state between cycles, by container and device, and how long each part is kept.

One cycle passes a GuardState to the next. A CycleState is open for one cycle: the cycle writes to it, then closes it into the
next GuardState. Nothing survives a restart of the agent, and nothing needs to: counting starts again.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import TypeVar

from gpushare_node.core.structs import Struct, field
from gpushare_node.guard.debts import Legacy, Violation, families, find_legacy, remains
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.identity import ContainerId, Owner, Process
from gpushare_node.guard.inputs import Cap, Grant, Settings
from gpushare_node.guard.verdicts import KillScope, Verdict

MINUTE_SECONDS = 60

_Key = TypeVar("_Key")
BudgetKey = tuple[str, str]
"""A namespace and a device: the unit that has a budget of targets."""


class Step(Enum):
    """The last step taken against a target."""

    TERM_SENT = "term-sent"
    CLIENT_SENT = "client-sent"
    KILL_SENT = "kill-sent"
    STUCK = "stuck"


class Target(Struct):
    """The processes of a container that are being ended, for the violation that began at `violation_since`.

    `kills`: how often SIGKILL was sent, first at `killed_at`. `step_at`: when the last signal was sent.
    """

    unit: Unit
    processes: tuple[Process, ...]
    scope: KillScope
    is_mps: bool
    violation_since: float
    step: Step
    step_at: float
    kills: int = 0
    killed_at: float = 0.0

    def is_for(self, violation: Violation) -> bool:
        """Whether it was chosen for this violation. A violation that is paid or forgiven justifies no signal."""
        return violation.since == self.violation_since


class GuardState(Struct):
    """Everything that one cycle passes to the next.

    `choices`: when targets were chosen in a namespace on a device, within a minute; `strikes`: the same for each owner, for as
    long as strikes count; `legacies`: debts of containers that are gone; `paused_since`: since when the rows contradict their
    devices; `empty`: since when a device has been allocated without ever showing a process; `seen`: the devices that have
    shown one.
    """

    now: float | None = None
    violations: Mapping[Unit, Violation] = field(default_factory=dict)
    targets: Mapping[Unit, Target] = field(default_factory=dict)
    choices: Mapping[BudgetKey, tuple[float, ...]] = field(default_factory=dict)
    strikes: Mapping[Owner, tuple[float, ...]] = field(default_factory=dict)
    legacies: Mapping[tuple[Owner, str], Legacy] = field(default_factory=dict)
    paused_since: float | None = None
    empty: Mapping[str, float] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()


class CycleState:
    """A GuardState, open for one cycle. `now` never goes back; if the clock has not moved, no debt changes."""

    def __init__(self, history: GuardState, now: float, settings: Settings) -> None:
        """Open the state at this time; times that are too old to matter are dropped."""
        self.settings = settings
        self.now = now if history.now is None else max(now, history.now)
        self.has_moved = history.now is None or now > history.now
        self.violations = dict(history.violations)
        self.targets = dict(history.targets)
        self.choices = self._within(history.choices, MINUTE_SECONDS)
        self.strikes = self._within(history.strikes, settings.strike_seconds)
        self.legacies = {key: one for key, one in history.legacies.items() if remains(one, self.now) > 0}
        self.paused_since = history.paused_since
        self.empty = dict(history.empty)
        self.seen = history.seen
        self.verdicts: list[Verdict] = []
        self._families: Mapping[Owner, Sequence[ContainerId]] | None = None

    def _within(self, times: Mapping[_Key, tuple[float, ...]], seconds: float) -> dict[_Key, tuple[float, ...]]:
        if not times:
            return {}
        recent = ((key, tuple(time for time in own if self.now - time < seconds)) for key, own in times.items())
        return {key: own for key, own in recent if own}

    def count(self, unit: Unit, members: tuple[Process, ...], cap: Cap, grants: Mapping[ContainerId, Grant]) -> Violation:
        """Count a sample at which the container is over its cap, and return the violation."""
        former, owner = self.violations.get(unit), grants[unit.container].owner
        if former is None:
            violation = Violation.open(self.now, members, cap, owner, self._inherit(unit, owner))
        else:
            violation = former.over(self.now, members, cap, self.settings)
        if self._families is None:
            # Once a cycle: on a full node every container may be over its cap at once.
            self._families = families(grants)
        violation = self.violations[unit] = violation._replace(siblings=frozenset(self._families[owner]) - {unit.container})
        return violation

    def _inherit(self, unit: Unit, owner: Owner) -> float:
        """Return the debt left by a container of the same owner that was gone before this one came. Only one inherits it."""
        legacy = self.legacies.get((owner, unit.device))
        if legacy is None or unit.container in legacy.others:
            return 0.0
        del self.legacies[owner, unit.device]
        return remains(legacy, self.now)

    def pay(self, unit: Unit) -> None:
        """Count a sample at which an offender is within its cap."""
        violation = self.violations[unit].within(self.now, self.settings)
        if violation is None:
            del self.violations[unit]
        else:
            self.violations[unit] = violation

    def forgive_all(self) -> None:
        """Start the grace of every violation again."""
        self.violations = {
            unit: violation.forgive(self.now, violation.cap, self.settings) for unit, violation in self.violations.items()
        }

    def pass_on_debt(self, unit: Unit) -> None:
        """Pass the debt of a container that is gone on to its owner."""
        violation = self.violations.pop(unit)
        key = (violation.owner, unit.device)
        self.legacies[key] = find_legacy(violation, self.legacies.get(key), self.now)

    def is_taken(self, device: str) -> bool:
        """Whether a target on the device blocks others.

        One that waits within its cap or that is stuck does not, nor one that has not been surely over its cap for longer than
        a SIGTERM is given: no step can follow before it is seen again, and that may be never.
        """
        return any(target.unit.device == device and self._is_pending(target) for target in self.targets.values())

    def _is_pending(self, target: Target) -> bool:
        if target.step in {Step.KILL_SENT, Step.STUCK}:
            return target.step is Step.KILL_SENT
        violation = self.violations.get(target.unit)
        if violation is None:
            return True
        return not violation.is_within and self.now - violation.known_at <= self.settings.exit_seconds

    def is_spent(self, budget_key: BudgetKey) -> bool:
        """Whether the namespace's budget for the device is spent for now."""
        return len(self.choices.get(budget_key, ())) >= self.settings.kills_per_minute

    def served_at(self, budget_key: BudgetKey) -> float:
        """Return when a target was last chosen there, within the last minute; 0 if none was."""
        return max(self.choices.get(budget_key, ()), default=0.0)

    def choose(self, unit: Unit, owner: Owner) -> None:
        """Record that a target is chosen in this container."""
        budget_key = (owner.namespace, unit.device)
        self.choices[budget_key] = (*self.choices.get(budget_key, ()), self.now)
        self.strikes[owner] = (*self.strikes.get(owner, ()), self.now)

    def close(self, grants: Mapping[ContainerId, Grant], places: Iterable[str]) -> GuardState:
        """Return the state for the next cycle, without stale violations of containers or on devices that are gone."""
        stale, known = self.settings.stale_seconds, frozenset(places) if self.violations else frozenset()
        return GuardState(
            now=self.now,
            violations={
                unit: violation for unit, violation in self.violations.items()
                if self.now - violation.known_at <= stale or (unit.container in grants and unit.device in known)
            },
            targets=self.targets,
            choices=self.choices,
            strikes=self.strikes,
            legacies=self.legacies,
            paused_since=self.paused_since,
            empty=self.empty,
            seen=self.seen,
        )
