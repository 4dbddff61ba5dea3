"""The debt of a container for the time that it was over its cap on a device. Pure arithmetic; selects no target.

The time between two consecutive samples counts as over if both found the container over its cap, and as within if neither did,
up to two nominal intervals: between samples that are further apart its usage is unknown. Time within the cap pays half back,
after the first half interval: the time between a sample over the cap and one within it counts for neither side, and a container
that goes up and down must not gain by it. Time next to an unknown sample changes nothing.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from gpushare_node.guard.identity import ContainerId, Owner, Process
from gpushare_node.guard.inputs import Cap, Grant, Settings

_MAX_INTERVALS = 2
"""The time between two samples counts for at most this many nominal intervals."""

_BREATH_INTERVALS = 0.5
"""The first part of time within the cap, in nominal intervals, which pays nothing back."""

_PAID_PER_SECOND = 0.5
_MAX_PATIENCES = 2
"""The debt is at most this many times the debt at the first signal, so that paying it back does not take too long."""

_TINY_SECONDS = 1e-6
"""Tolerance for comparing sums of floating point seconds."""


class Violation(NamedTuple):
    """The debt of one container on one device. Times are monotonic seconds.

    `since`: when it was first over; `looked_at`: the last sample, None if that one was unknown; `known_at`: the last sample
    with a known result; `is_within`: whether that result was within the cap; `within_seconds`: how long it has been within it
    since it was last over. `members` are the container's processes when it was last over, `siblings` its owner's other
    containers at that time, `samples` the number of samples over the cap, `has_paused` whether it was within its cap in
    between. `cap` is the cap that was exceeded. `is_on_fallback`: only the MPS fallback may follow. `is_settled`: a dry run has
    reported every step.
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
    is_within: bool = False
    within_seconds: float = 0.0
    has_paused: bool = False
    warned_at: float | None = None
    evicted_at: float | None = None
    is_on_fallback: bool = False
    is_settled: bool = False

    @classmethod
    def open(cls, now: float, members: tuple[Process, ...], cap: Cap, owner: Owner, debt: float) -> "Violation":
        """Return the violation that the first sample over the cap opens."""
        return cls(since=now, looked_at=now, known_at=now, members=members, cap=cap, owner=owner, debt=debt)

    def over(self, now: float, members: tuple[Process, ...], cap: Cap, settings: Settings) -> "Violation":
        """Return the violation after one more sample over the cap. With a changed cap the grace and the warning start again."""
        gained = 0.0
        if self.looked_at is not None and not self.is_within:
            gained = _known_seconds(self.looked_at, now, settings)
        most = _MAX_PATIENCES * settings.patience_seconds(cap)
        found = self._replace(
            looked_at=now, known_at=now, members=members, debt=min(self.debt + gained, most), samples=self.samples + 1,
            is_within=False, within_seconds=0.0, has_paused=self.has_paused or self.is_within,
        )
        return found if cap == self.cap else found.forgive(now, cap, settings)

    def within(self, now: float, settings: Settings) -> "Violation | None":
        """Return the violation after a sample within the cap; None if the debt is paid."""
        seconds, paid = 0.0, 0.0
        if self.is_within:
            seconds = self.within_seconds
        if self.is_within and self.looked_at is not None:
            seconds += _known_seconds(self.looked_at, now, settings)
            breath = _BREATH_INTERVALS * settings.interval_seconds
            paid = (max(seconds - breath, 0.0) - max(self.within_seconds - breath, 0.0)) * _PAID_PER_SECOND
        debt = self.debt - paid
        if debt <= _TINY_SECONDS:
            return None
        return self._replace(looked_at=now, known_at=now, debt=debt, is_within=True, within_seconds=seconds)

    def unknown(self) -> "Violation":
        """Return the violation after a sample with an unknown result."""
        return self._replace(looked_at=None)

    def forgive(self, now: float, cap: Cap, settings: Settings) -> "Violation":
        """Return the same violation at the start of its grace."""
        debt = min(self.debt, settings.confirm_seconds)
        return self._replace(
            since=now, cap=cap, debt=debt, warned_at=None, evicted_at=None, is_on_fallback=False, is_settled=False
        )

    def is_confirmed(self, settings: Settings) -> bool:
        """Whether it has been over its cap long enough to be warned."""
        return self.debt >= settings.confirm_seconds - _TINY_SECONDS

    def rest_seconds(self, settings: Settings) -> float:
        """Return how many more seconds it may stay over its cap; 0 if its cap's action is due."""
        rest = settings.patience_seconds(self.cap) - self.debt
        return rest if rest > _TINY_SECONDS else 0.0


def _known_seconds(former: float, now: float, settings: Settings) -> float:
    """Return how much of the time between two samples with the same result counts."""
    return min(now - former, _MAX_INTERVALS * settings.interval_seconds)


class Legacy(NamedTuple):
    """The debt of a container that is gone. `others`: its owner's containers when it was last over; they do not inherit it."""

    debt: float
    at: float
    others: frozenset[ContainerId]


def remains(legacy: Legacy, now: float) -> float:
    """Return the debt that is left: time without a container pays back like time within the cap."""
    return max(0.0, legacy.debt - (now - legacy.at) * _PAID_PER_SECOND)


def families(grants: Mapping[ContainerId, Grant]) -> Mapping[Owner, Sequence[ContainerId]]:
    """Return the containers of each owner: the debt of one is not the debt of the others."""
    found: dict[Owner, list[ContainerId]] = {}
    for container, grant in grants.items():
        found.setdefault(grant.owner, []).append(container)
    return found


def find_legacy(violation: Violation, former: Legacy | None, now: float) -> Legacy:
    """Return the debt that this violation leaves to its owner; if the owner has one already, the larger of the two."""
    legacy = Legacy(debt=violation.debt, at=now, others=violation.siblings)
    return former if former is not None and remains(former, now) >= legacy.debt else legacy
