"""Debts: for how long a container, or a namespace, was over on a device. Pure arithmetic; selects no target.

The contract of the steps that `guard.escalation` takes with them:

- Time over the cap between two consecutive known samples is a debt of the container, and of its namespace on the device. Time
  within the cap pays half of its length back. Nothing else does: no process that exits, no next run of the container in its
  pod, no unknown sample. Only a restart of this program begins with no debts, and a tenant cannot cause one.
- With its patience (the required samples and the cap's grace) spent, the processes that hold a container's memory are
  killed. If it is over again while its debt, or its namespace's, remains, the whole container is.
- A container that is over while its namespace owes is ended sooner: but only after `confirm_seconds` over its own cap, and no
  container within its cap is ended for another.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpushare_node.guard.inputs import Cap, Owner, Process, Settings

_UNPAID_INTERVALS = 0.5
"""The first part of time within the cap, in nominal intervals, which pays nothing back: the time between a sample over the cap
and one within it counts for neither side, and a container that goes up and down must not gain by it."""

_PAID_PER_SECOND = 0.5
_MAX_PATIENCES = 2
"""A debt is at most this many times the patience, so that paying it back does not take too long."""

_TINY_SECONDS = 1e-6
"""Tolerance for comparing sums of floating point seconds."""


class Debt(NamedTuple):
    """How many seconds are owed, after the last sample. `looked_at`: its time, None if its result was unknown.

    `is_within`: whether the last known result was within the cap; `within_seconds`: for how long it has been so.
    """

    seconds: float = 0.0
    looked_at: float | None = None
    is_within: bool = True
    within_seconds: float = 0.0

    def over(self, now: float, patience_seconds: float, settings: Settings) -> "Debt":
        """Return the debt after one more sample over the cap."""
        gained = 0.0 if self.is_within else self.known_seconds(now, settings)
        return Debt(min(self.seconds + gained, _MAX_PATIENCES * patience_seconds), now, False, 0.0)

    def known_seconds(self, now: float, settings: Settings) -> float:
        """Return the time since the last sample; 0 if its result was unknown, or is so old that nothing is known since."""
        return now - self.looked_at if self.looked_at is not None and now - self.looked_at <= settings.stale_seconds else 0.0

    def within(self, now: float, settings: Settings) -> "Debt":
        """Return the debt after a sample within the cap."""
        before = self.within_seconds if self.is_within else 0.0
        after = before + (self.known_seconds(now, settings) if self.is_within else 0.0)
        unpaid = _UNPAID_INTERVALS * settings.interval_seconds
        paid = (max(after - unpaid, 0.0) - max(before - unpaid, 0.0)) * _PAID_PER_SECOND
        return Debt(max(self.seconds - paid, 0.0), now, True, after)

    def unknown(self) -> "Debt":
        """Return the debt after a sample with an unknown result."""
        return self._replace(looked_at=None)

    @property
    def is_paid(self) -> bool:
        """Whether nothing is owed."""
        return self.is_within and self.seconds <= _TINY_SECONDS

    def reaches(self, seconds: float) -> bool:
        """Whether so much is owed."""
        return self.seconds >= seconds - _TINY_SECONDS


class Violation(NamedTuple):
    """One container on one device that owes. Times are monotonic seconds.

    `since`: when it was first over; `known_at`: the last sample with a known result. `members` are the container's processes
    when it was last over, `samples` the number of samples over the cap, `over_seconds` the time between them that became a
    debt, paid or not; `has_paused`: whether it was within its cap in between.
    `cap` is the cap that was exceeded. `offences`: how often targets were selected in it while debts remained; `due_at`: since
    when its action is due. `is_settled`: no step follows for now, because
    a dry run has reported each, or no signal reaches it.
    """

    since: float
    known_at: float
    cap: Cap
    owner: Owner
    debt: Debt
    members: tuple[Process, ...] = ()
    samples: int = 0
    over_seconds: float = 0.0
    has_paused: bool = False
    offences: int = 0
    due_at: float | None = None
    warned_at: float | None = None
    evicted_at: float | None = None
    is_settled: bool = False

    @property
    def is_within(self) -> bool:
        """Whether the last known sample was within the cap."""
        return self.debt.is_within

    def over(self, now: float, members: tuple[Process, ...], cap: Cap, settings: Settings) -> "Violation":
        """Return the violation after one more sample over the cap. With another cap the grace and the warning start again."""
        found = self._replace(
            known_at=now,
            members=members,
            cap=cap,
            debt=self.debt.over(now, settings.patience_seconds(cap), settings),
            samples=self.samples + 1,
            over_seconds=self.over_seconds + (0.0 if self.is_within else self.debt.known_seconds(now, settings)),
            has_paused=self.has_paused or (self.samples > 0 and self.is_within),
        )
        is_other = (cap.limit_bytes, cap.action) != (self.cap.limit_bytes, self.cap.action)
        return found.restarted(now, settings) if is_other else found

    def within(self, now: float, settings: Settings) -> "Violation":
        """Return the violation after a sample within the cap."""
        return self._replace(known_at=now, debt=self.debt.within(now, settings))

    def unknown(self) -> "Violation":
        """Return the violation after a sample with an unknown result."""
        return self._replace(debt=self.debt.unknown())

    def restarted(self, now: float, settings: Settings) -> "Violation":
        """Return the violation with its grace started again."""
        debt = self.debt._replace(seconds=min(self.debt.seconds, settings.warn_seconds))
        return self._replace(since=now, debt=debt, due_at=None, warned_at=None, evicted_at=None, is_settled=False)

    def rest_seconds(self, namespace: Debt, settings: Settings) -> float:
        """Return how many more seconds it may stay over its cap; 0 if its cap's action is due.

        If its namespace owes a whole patience, there is no grace; if it owes the most that it can, what counts is its own time
        over the cap, paid or not: pods of a namespace that take turns pay what they owe meanwhile.
        """
        patience = settings.patience_seconds(self.cap)
        desired = settings.warn_seconds if namespace.reaches(patience) else patience
        rest = desired - self.debt.seconds
        if owes_most(namespace, self.cap, settings):
            rest = min(rest, settings.confirm_seconds - self.over_seconds)
        return rest if rest > _TINY_SECONDS else 0.0


def owes_most(namespace: Debt, cap: Cap, settings: Settings) -> bool:
    """Whether the namespace of a container with this cap owes the most that it can."""
    return namespace.reaches(_MAX_PATIENCES * settings.patience_seconds(cap))


NamespaceDebts = Mapping[tuple[str, str], Debt]
"""The debt of each namespace on each device."""
