"""The guard's state between cycles, by container and device, and how long each part is kept.

One cycle passes a GuardState to the next. A CycleState is open for one cycle: the cycle writes to it, then closes it into the
next GuardState. Debts with an offence outlive a restart of the program (`enforce.enforcer`); everything else starts again.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum

from gpushare_node.contract.struct import Struct, field
from gpushare_node.guard.debts import Debt, NamespaceDebts, Violation
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, Owner, Process, Settings
from gpushare_node.guard.verdicts import KillScope, Verdict, ViolationDetails

MINUTE_SECONDS = 60

_SERVED_SECONDS = 600
"""How long it counts when a namespace was last served: longer than any target blocks its device."""

BudgetKey = tuple[str, str]
"""A namespace and a device: the unit that has a budget of targets."""


class Step(Enum):
    """The last step taken against a target."""

    TERM_SENT = "term-sent"
    CLIENT_SENT = "client-sent"
    KILL_SENT = "kill-sent"
    STUCK = "stuck"


class Target(Struct):
    """The processes of a container that are being killed, for the violation that began at `violation_since`.

    `facts` are those of its last verdict. `kills`: how often SIGKILL was sent, first at `killed_at`. `step_at`: when the last
    signal was sent.
    """

    unit: Unit
    processes: tuple[Process, ...]
    scope: KillScope
    is_mps: bool
    facts: ViolationDetails
    violation_since: float
    step: Step
    step_at: float
    kills: int = 0
    killed_at: float = 0.0

    def is_for(self, violation: Violation) -> bool:
        """Whether it was chosen for this violation. A violation that is paid or has begun again justifies no signal."""
        return violation.since == self.violation_since


class GuardState(Struct):
    """Everything that one cycle passes to the next.

    `namespaces` are debts by namespace and device. `choices`: when targets were chosen there, within a minute; `served`: when
    last. `paused_since`: since when the rows contradict their devices; `empty`: since when a device has been allocated without
    ever showing a process; `seen`: the devices that have shown one.
    """

    now: float | None = None
    violations: Mapping[Unit, Violation] = field(default_factory=dict)
    targets: Mapping[Unit, Target] = field(default_factory=dict)
    choices: Mapping[BudgetKey, tuple[float, ...]] = field(default_factory=dict)
    served: Mapping[BudgetKey, float] = field(default_factory=dict)
    namespaces: NamespaceDebts = field(default_factory=dict)
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
        self.choices = {
            key: recent
            for key, times in history.choices.items()
            if (recent := tuple(time for time in times if self.now - time < MINUTE_SECONDS))
        }
        self.served = {key: at for key, at in history.served.items() if self.now - at < _SERVED_SECONDS}
        self.namespaces = dict(history.namespaces)
        self.paused_since = history.paused_since
        self.empty = dict(history.empty)
        self.seen = history.seen
        self.verdicts: list[Verdict] = []

    def count(
        self, unit: Unit, members: tuple[Process, ...], cap: Cap, owner: Owner, present: AbstractSet[ContainerId]
    ) -> Violation:
        """Count a sample over the container's cap, and return the violation. `present`: the containers on the device."""
        former = self.violations.get(unit) or self._take_over(unit, owner, present)
        if former is None:
            former = Violation(since=self.now, known_at=self.now, cap=cap, owner=owner, debt=Debt())
        violation = self.violations[unit] = former.over(self.now, members, cap, self.settings)
        return violation

    def _take_over(self, unit: Unit, owner: Owner, present: AbstractSet[ContainerId]) -> Violation | None:
        """Return what the container's earlier run in its pod owes, if that run is no longer on the device."""
        for other, violation in self.violations.items():
            if other.device == unit.device and violation.owner.may_be(owner) and other.container not in present:
                return self.violations.pop(other)
        return None

    def pay(self, unit: Unit) -> None:
        """Count a sample at which an offender is within its cap. It is remembered for as long as its namespace owes, too."""
        violation = self.violations[unit].within(self.now, self.settings)
        if violation.debt.is_paid and not self.namespace_debt(violation.owner, unit.device).seconds:
            del self.violations[unit]
        else:
            self.violations[unit] = violation

    def namespace_debt(self, owner: Owner, device: str) -> Debt:
        """Return what the owner's namespace owes on the device."""
        return self.namespaces.get((owner.namespace, device), Debt())

    def count_namespaces(
        self, over: Mapping[BudgetKey, float], unknown: AbstractSet[BudgetKey], trusted: AbstractSet[str]
    ) -> None:
        """Count the cycle for every namespace. `over`: those with a container over its cap, with its patience in seconds.

        `unknown`: those of which a container may be over; `trusted`: the devices whose rows can be true.
        """
        for key in {*self.namespaces, *over}:
            debt = self.namespaces.get(key, Debt())
            if key in over:
                debt = debt.over(self.now, over[key], self.settings)
            elif key in unknown or key[1] not in trusted:
                debt = debt.unknown()
            else:
                debt = debt.within(self.now, self.settings)
            self.namespaces[key] = debt
            if debt.is_paid:
                del self.namespaces[key]

    def restart_all(self) -> None:
        """Start the grace of every violation again: no container owes what false rows made."""
        most = self.settings.confirm_seconds
        self.namespaces = {key: debt._replace(seconds=min(debt.seconds, most)) for key, debt in self.namespaces.items()}
        self.violations = {unit: violation.restarted(self.now, self.settings) for unit, violation in self.violations.items()}

    def is_taken(self, device: str) -> bool:
        """Whether a target on the device blocks others.

        One that waits within its cap or that is stuck does not, nor a whole container, nor one that has not been surely over
        its cap for longer than a SIGTERM is given: no step can follow before it is seen again, and that may be never.
        """
        return any(target.unit.device == device and self._is_pending(target) for target in self.targets.values())

    def _is_pending(self, target: Target) -> bool:
        if target.step in {Step.KILL_SENT, Step.STUCK}:
            return target.step is Step.KILL_SENT
        violation = self.violations.get(target.unit)
        if violation is None:
            return True
        if target.scope is KillScope.CONTAINER:
            # Its end is certain, and needs no further look at the device. Clients of MPS are terminated first.
            return target.is_mps
        return not violation.is_within and self.now - violation.known_at <= self.settings.exit_seconds

    def choose(self, unit: Unit, owner: Owner) -> None:
        """Record that a target is chosen in this container."""
        budget_key = (owner.namespace, unit.device)
        self.choices[budget_key] = (*self.choices.get(budget_key, ()), self.now)
        self.served[budget_key] = self.now
        violation = self.violations[unit]
        self.violations[unit] = violation._replace(offences=violation.offences + 1)

    def close(self, grants: Mapping[ContainerId, Grant], places: Iterable[str]) -> GuardState:
        """Return the state for the next cycle, without stale violations of containers or on devices that are gone.

        While no pod, or no device, is known, nothing is gone: neither may have been read since this program began.
        """
        stale, known = self.settings.stale_seconds, frozenset(places)
        owners = {grant.owner for grant in grants.values()} if self.violations else set()
        violations = {
            unit: violation
            for unit, violation in self.violations.items()
            if self.now - violation.known_at <= stale
            or ((not owners or violation.owner in owners) and (not known or unit.device in known))
        }
        owing = {(violation.owner.namespace, unit.device) for unit, violation in violations.items()}
        return GuardState(
            now=self.now,
            violations=violations,
            targets=self.targets,
            choices=self.choices,
            served=self.served,
            namespaces={key: debt for key, debt in self.namespaces.items() if key[1] in known or key in owing},
            paused_since=self.paused_since,
            empty=self.empty,
            seen=self.seen,
        )
