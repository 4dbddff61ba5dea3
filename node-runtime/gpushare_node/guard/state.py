"""The guard's state between cycles, by container and device, and how long each part is kept.

One cycle passes a GuardState to the next. A CycleState is open for one cycle: the cycle writes to it, then closes it into the
next GuardState. Nothing outlives a restart of the program.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from enum import Enum
from typing import NamedTuple

from gpushare_node.contract.struct import Struct, field
from gpushare_node.guard.debts import Debt, NamespaceDebts, Violation
from gpushare_node.guard.device_view import Unit
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, Owner, Process, Settings
from gpushare_node.guard.verdicts import KillScope, Verdict, ViolationDetails

NamespaceKey = tuple[str, str]
"""A namespace and a device: the unit that has a debt beside those of its containers."""


class Endings(NamedTuple):
    """How often containers of a namespace were ended on a device while it owed, and since when.

    `pods`: the uids of the node's pods at the first ending. A pod that is not among them has come since.
    """

    since: float
    ended: int
    pods: frozenset[str]


class Step(Enum):
    """The last step taken against a target."""

    TERM_SENT = "term-sent"
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

    `namespaces` are debts by namespace and device, `endings` what came of them. `paused_since`: since when the rows contradict
    their devices; `empty`: since when a device has been allocated without ever showing a process; `seen`: the devices that
    have shown one.
    """

    now: float | None = None
    violations: Mapping[Unit, Violation] = field(default_factory=dict)
    targets: Mapping[Unit, Target] = field(default_factory=dict)
    namespaces: NamespaceDebts = field(default_factory=dict)
    endings: Mapping[NamespaceKey, Endings] = field(default_factory=dict)
    paused_since: float | None = None
    empty: Mapping[str, float] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()


class CycleState:
    """A GuardState, open for one cycle. `now` never goes back; if the clock has not moved, no debt changes."""

    def __init__(
        self, history: GuardState, now: float, settings: Settings, grants: Mapping[ContainerId, Grant] | None = None
    ) -> None:
        """Open the state at this time. `grants` as in GuardInput."""
        self.settings = settings
        self.grants = grants or {}
        self.owners = {grant.owner for grant in self.grants.values()} if history.violations else set()
        self.now = now if history.now is None else max(now, history.now)
        self.has_moved = history.now is None or now > history.now
        self.violations = dict(history.violations)
        self.targets = dict(history.targets)
        self.namespaces = dict(history.namespaces)
        self.endings = dict(history.endings)
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
        """Count a sample within the cap of who owes. Paid, it is remembered while its pod lasts and its namespace owes."""
        violation = self.violations[unit].within(self.now, self.settings)
        is_remembered = violation.owner in self.owners and self.namespace_debt(violation.owner, unit.device).seconds
        if violation.debt.is_paid and not is_remembered:
            del self.violations[unit]
        else:
            self.violations[unit] = violation

    def namespace_debt(self, owner: Owner, device: str) -> Debt:
        """Return what the owner's namespace owes on the device."""
        return self.namespaces.get((owner.namespace, device), Debt())

    def count_namespaces(
        self,
        over: Mapping[NamespaceKey, float],
        unknown: AbstractSet[NamespaceKey],
        trusted: AbstractSet[str],
        pending: AbstractSet[str],
    ) -> None:
        """Count the cycle for every namespace. `over`: those with a container over its cap, with its patience in seconds.

        `unknown`: those of which a container may be over; `trusted`: the devices whose rows can be true; `pending`: those of
        which there is no news.
        """
        for key in {*self.namespaces, *over}:
            if key[1] in pending:
                continue
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
        most = self.settings.warn_seconds
        self.namespaces = {key: debt._replace(seconds=min(debt.seconds, most)) for key, debt in self.namespaces.items()}
        self.violations = {unit: violation.restarted(self.now, self.settings) for unit, violation in self.violations.items()}

    def comes_again(self, violation: Violation, unit: Unit) -> bool:
        """Whether a container was ended in this place, or one of its namespace before this pod came, and debts remain.

        A target that is being ended now is not one that has come again.
        """
        endings = self.endings.get((violation.owner.namespace, unit.device))
        former = violation.offences - (unit in self.targets)
        return endings is not None and (former > 0 or unit.container.pod_uid not in endings.pods)

    def choose(self, unit: Unit, owner: Owner) -> None:
        """Record that a target is chosen in this container."""
        former = self.endings.get((owner.namespace, unit.device))
        if former is None:
            former = Endings(self.now, 0, frozenset([container.pod_uid for container in self.grants]))
        self.endings[owner.namespace, unit.device] = former._replace(ended=former.ended + 1)
        violation = self.violations[unit]
        self.violations[unit] = violation._replace(offences=violation.offences + 1)

    def close(self, places: Iterable[str]) -> GuardState:
        """Return the state for the next cycle, without stale violations of containers or on devices that are gone.

        While no pod, or no device, is known, nothing is gone: neither may have been read since this program began.
        """
        stale, known = self.settings.stale_seconds, frozenset(places)
        violations = {
            unit: violation
            for unit, violation in self.violations.items()
            if self.now - violation.known_at <= stale
            or ((not self.owners or violation.owner in self.owners) and (not known or unit.device in known))
        }
        owing = {(violation.owner.namespace, unit.device) for unit, violation in violations.items()}
        namespaces = {key: debt for key, debt in self.namespaces.items() if key[1] in known or key in owing}
        return GuardState(
            now=self.now,
            violations=violations,
            targets=self.targets,
            namespaces=namespaces,
            endings={key: endings for key, endings in self.endings.items() if key in namespaces},
            paused_since=self.paused_since,
            empty=self.empty,
            seen=self.seen,
        )
