"""Debts: for how long a container, or a namespace, was over on a device. Pure arithmetic; selects no target.

The contract of the steps that `guard.escalation` takes with them:

- Time over the cap between two consecutive known samples is a debt of the container, and of its namespace on the device. Time
  within the cap pays half of its length back. Nothing else does: no process that exits, no next run of the container in its
  pod, no unknown sample and, once targets were selected in it, no restart of this program.
- With its patience (the required samples and the cap's grace) spent, the processes that hold a container's memory are
  killed. If it is over again while its debt, or its namespace's, remains, the whole container is.
- A container that is over while its namespace owes has less patience, or none. No container within its cap is killed for
  another.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gpushare_node.guard.inputs import Cap, Owner, Process, Settings

_MAX_INTERVALS = 2
"""The time between two samples counts for at most this many nominal intervals."""

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
        counts = self.looked_at is not None and not self.is_within
        gained = self._known_seconds(now, settings) if counts else 0.0
        return Debt(min(self.seconds + gained, _MAX_PATIENCES * patience_seconds), now, False, 0.0)

    def within(self, now: float, settings: Settings) -> "Debt":
        """Return the debt after a sample within the cap."""
        before = self.within_seconds if self.is_within else 0.0
        after = before + (self._known_seconds(now, settings) if self.is_within and self.looked_at is not None else 0.0)
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

    def _known_seconds(self, now: float, settings: Settings) -> float:
        return 0.0 if self.looked_at is None else min(now - self.looked_at, _MAX_INTERVALS * settings.interval_seconds)


class Violation(NamedTuple):
    """One container on one device that owes. Times are monotonic seconds.

    `since`: when it was first over; `known_at`: the last sample with a known result. `members` are the container's processes
    when it was last over, `samples` the number of samples over the cap, `has_paused` whether it was within its cap in between.
    `cap` is the cap that was exceeded. `offences`: how often targets were selected in it while debts remained; `due_at`: since
    when its action is due. `is_on_fallback`: only the MPS fallback may follow. `is_settled`: no step follows for now, because
    a dry run has reported each, or no signal reaches it.
    """

    since: float
    known_at: float
    cap: Cap
    owner: Owner
    debt: Debt
    members: tuple[Process, ...] = ()
    samples: int = 0
    has_paused: bool = False
    offences: int = 0
    due_at: float | None = None
    warned_at: float | None = None
    evicted_at: float | None = None
    is_on_fallback: bool = False
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
        debt = self.debt._replace(seconds=min(self.debt.seconds, settings.confirm_seconds))
        return self._replace(
            since=now, debt=debt, due_at=None, warned_at=None, evicted_at=None, is_on_fallback=False, is_settled=False
        )

    def rest_seconds(self, namespace: Debt, settings: Settings) -> float:
        """Return how many more seconds it may stay over its cap; 0 if its cap's action is due.

        If its namespace owes a whole patience, there is no grace; if it owes the most that it can, the required samples may
        have come in turns with those of others.
        """
        patience = settings.patience_seconds(self.cap)
        if self.samples >= settings.samples and namespace.reaches(_MAX_PATIENCES * patience):
            return 0.0
        desired = settings.confirm_seconds if namespace.reaches(patience) else patience
        return 0.0 if self.debt.reaches(desired) else desired - self.debt.seconds


NamespaceDebts = Mapping[tuple[str, str], Debt]
"""The debt of each namespace on each device."""
