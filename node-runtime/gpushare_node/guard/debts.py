"""What a container owes for the time that it was over its cap on a device. Pure arithmetic; chooses nobody.

Time between two looks that follow each other counts as over when both found the container over, as calm when neither did, and
for at most two nominal intervals: nobody knows what was between looks that are further apart. Calm pays back half its length,
from half an interval on: the time between a look over the cap and a calm one counts for neither side, and whoever goes up and
down is not to gain by it. Time with an unknown look in it changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpushare_node.guard.identity import ContainerId, Owner, Process
from gpushare_node.guard.inputs import Cap, Grant, Settings

_LONGEST_INTERVALS = 2
"""For how many nominal intervals the time between two looks counts at most."""

_BREATH_INTERVALS = 0.5
"""How much of a calm pays nothing, in nominal intervals."""

_PAID_PER_SECOND = 0.5
_MOST_PATIENCES = 2
"""The debt is at most so many times what leads to the first signal: it is paid within a time that people can wait for."""

_TINY_SECONDS = 1e-6
"""Sums of floating point seconds are compared with this in mind."""


class Violation(NamedTuple):
    """The debt of one container on one device. Times are the monotonic clock's.

    `since` when it was first over; `looked_at` the last look, None where that told nothing; `known_at` the last one that did;
    `is_calm` what it found; `calm_seconds` how long it has been calm since it was over. `members` are the container's
    processes when it was last over, `siblings` its owner's other containers then, `samples` how often it was found so,
    `has_paused` whether it was calm in between. `cap` is the one that was exceeded. `is_on_fallback`: only the MPS fallback may
    follow. `is_settled`: a dry run has told everything.
    """

    since: float
    looked_at: float | None
    known_at: float
    members: tuple[Process, ...]
    cap: Cap
    owner: Owner
    debt: float
    siblings: frozenset[ContainerId] = frozenset()
    samples: int = 1
    is_calm: bool = False
    calm_seconds: float = 0.0
    has_paused: bool = False
    warned_at: float | None = None
    evicted_at: float | None = None
    is_on_fallback: bool = False
    is_settled: bool = False

    @classmethod
    def open(cls, now: float, members: tuple[Process, ...], cap: Cap, owner: Owner, debt: float) -> "Violation":
        """The first look over the cap."""
        return cls(since=now, looked_at=now, known_at=now, members=members, cap=cap, owner=owner, debt=debt)

    def over(self, now: float, members: tuple[Process, ...], cap: Cap, settings: Settings) -> "Violation":
        """One more look over the cap. Under another cap the grace begins anew, with a new warning."""
        gained = 0.0
        if self.looked_at is not None and not self.is_calm:
            gained = _known_seconds(self.looked_at, now, settings)
        most = _MOST_PATIENCES * settings.patience_seconds(cap)
        found = self._replace(
            looked_at=now, known_at=now, members=members, debt=min(self.debt + gained, most), samples=self.samples + 1,
            is_calm=False, calm_seconds=0.0, has_paused=self.has_paused or self.is_calm,
        )
        return found if cap == self.cap else found.forgive(now, cap, settings)

    def calm(self, now: float, settings: Settings) -> "Violation | None":
        """A look at which it is within its cap. None when it owes nothing any more."""
        seconds, paid = 0.0, 0.0
        if self.is_calm:
            seconds = self.calm_seconds
        if self.is_calm and self.looked_at is not None:
            seconds += _known_seconds(self.looked_at, now, settings)
            breath = _BREATH_INTERVALS * settings.interval_seconds
            paid = (max(seconds - breath, 0.0) - max(self.calm_seconds - breath, 0.0)) * _PAID_PER_SECOND
        debt = self.debt - paid
        if debt <= _TINY_SECONDS:
            return None
        return self._replace(looked_at=now, known_at=now, debt=debt, is_calm=True, calm_seconds=seconds)

    def unknown(self) -> "Violation":
        """A look that told nothing."""
        return self._replace(looked_at=None)

    def forgive(self, now: float, cap: Cap, settings: Settings) -> "Violation":
        """The same offence at the beginning of its grace."""
        debt = min(self.debt, settings.confirm_seconds)
        return self._replace(
            since=now, cap=cap, debt=debt, warned_at=None, evicted_at=None, is_on_fallback=False, is_settled=False
        )

    def is_confirmed(self, settings: Settings) -> bool:
        """Whether it has been over for so long that it is warned."""
        return self.debt >= settings.confirm_seconds - _TINY_SECONDS

    def rest_seconds(self, settings: Settings) -> float:
        """How much longer it may be over; 0 when it is to be ended."""
        rest = settings.patience_seconds(self.cap) - self.debt
        return rest if rest > _TINY_SECONDS else 0.0


def _known_seconds(former: float, now: float, settings: Settings) -> float:
    """What two looks that agree say of the time between them."""
    return min(now - former, _LONGEST_INTERVALS * settings.interval_seconds)


class Legacy(NamedTuple):
    """What a container owed when it was gone. `others` are its owner's that were there when it was last over: no heirs."""

    debt: float
    at: float
    others: frozenset[ContainerId]


def remains(legacy: Legacy, now: float) -> float:
    """What is still owed: time without a container pays like calm."""
    return max(0.0, legacy.debt - (now - legacy.at) * _PAID_PER_SECOND)


def families(grants: Mapping[ContainerId, Grant]) -> Mapping[Owner, Sequence[ContainerId]]:
    """The containers of each owner: what one of them owes is not the others'."""
    found: dict[Owner, list[ContainerId]] = {}
    for container, grant in grants.items():
        found.setdefault(grant.owner, []).append(container)
    return found


def find_legacy(violation: Violation, former: Legacy | None, now: float) -> Legacy:
    """What this offence leaves to its owner; the larger one where there is one already."""
    legacy = Legacy(debt=violation.debt, at=now, others=violation.siblings)
    return former if former is not None and remains(former, now) >= legacy.debt else legacy
