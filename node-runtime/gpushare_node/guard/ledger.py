"""What the guard remembers between cycles, by container and device, and how long.

A History is what one cycle hands to the next. A Ledger is a history that is open for one cycle: it is written to, then
closed into the next History. Nothing is kept that a restart of the agent would miss: it begins anew, and so does counting.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from gpushare_node.guard.identity import ContainerId, Process
from gpushare_node.guard.reading import Settings
from gpushare_node.guard.sight import Unit
from gpushare_node.guard.verdicts import Scope, Verdict

MINUTE_SECONDS = 60


class Offence(NamedTuple):
    """A run of samples over the cap, unbroken by a calm one. Times are the monotonic clock's.

    `members` are the container's processes in the last such sample. `confirmed_at`: when the run had the length that is asked
    for. `is_demoted`: only the MPS fallback may follow. `is_settled`: a dry run has told everything.
    """

    samples: int
    since: float
    sampled_at: float
    members: tuple[Process, ...]
    confirmed_at: float | None = None
    warned_at: float | None = None
    evicted_at: float | None = None
    is_demoted: bool = False
    is_settled: bool = False


class Step(Enum):
    """How far a victim has come."""

    TERM_SENT = "term-sent"
    CLIENT_SENT = "client-sent"
    KILL_SENT = "kill-sent"
    STUCK = "stuck"


@dataclass(frozen=True, kw_only=True)
class Victim:
    """The one thing that is being ended on a device, for the offence that began at `offence_since`."""

    unit: Unit
    processes: tuple[Process, ...]
    scope: Scope
    is_mps: bool
    offence_since: float
    step: Step
    step_at: float


@dataclass(frozen=True, kw_only=True)
class History:
    """Everything that one cycle leaves to the next.

    `victims` by device; `choices` when victims were chosen; `strikes` the same for each container; `empty` since when a device
    has been allocated without ever showing a process; `seen` the devices that have shown one.
    """

    now: float | None = None
    offences: Mapping[Unit, Offence] = field(default_factory=dict)
    victims: Mapping[str, Victim] = field(default_factory=dict)
    choices: tuple[float, ...] = ()
    strikes: Mapping[ContainerId, tuple[float, ...]] = field(default_factory=dict)
    empty: Mapping[str, float] = field(default_factory=dict)
    seen: frozenset[str] = frozenset()


class Ledger:
    """A history, open for one cycle. `now` never goes back; a clock that stands still gives no further samples."""

    def __init__(self, history: History, now: float, settings: Settings) -> None:
        """Open the history at this time; times that are too old to matter are left out."""
        self.settings = settings
        self.now = now if history.now is None else max(now, history.now)
        self.has_moved = history.now is None or now > history.now
        self.offences = dict(history.offences)
        self.victims = dict(history.victims)
        self.choices = self._within(history.choices, MINUTE_SECONDS)
        strikes = ((container, self._within(times, settings.strike_seconds)) for container, times in history.strikes.items())
        self.strikes = {container: times for container, times in strikes if times}
        self.empty = dict(history.empty)
        self.seen = history.seen
        self.verdicts: list[Verdict] = []

    def _within(self, times: Iterable[float], seconds: float) -> tuple[float, ...]:
        return tuple(time for time in times if self.now - time < seconds)

    def count(self, unit: Unit, members: tuple[Process, ...]) -> Offence:
        """One more sample over the cap. After a gap that is too long, the first of a new offence."""
        offence = self.offences.get(unit)
        if offence is None or self.now - offence.sampled_at > self.settings.stale_seconds:
            offence = Offence(samples=0, since=self.now, sampled_at=self.now, members=members)
        samples = offence.samples + 1
        is_confirmed = samples >= self.settings.samples and offence.confirmed_at is None
        confirmed_at = self.now if is_confirmed else offence.confirmed_at
        offence = offence._replace(samples=samples, sampled_at=self.now, members=members, confirmed_at=confirmed_at)
        self.offences[unit] = offence
        return offence

    def is_breaker_open(self) -> bool:
        """Whether so many victims were chosen within a minute that something else must be wrong."""
        return len(self.choices) >= self.settings.kills_per_minute

    def choose(self, container: ContainerId) -> None:
        """Note that a victim is chosen in this container."""
        self.choices = (*self.choices, self.now)
        self.strikes[container] = (*self.strikes.get(container, ()), self.now)

    def close(self) -> History:
        """What the next cycle needs to know: offences that nobody has seen for too long are forgotten."""
        stale = self.settings.stale_seconds
        return History(
            now=self.now,
            offences={unit: offence for unit, offence in self.offences.items() if self.now - offence.sampled_at <= stale},
            victims=self.victims,
            choices=self.choices,
            strikes=self.strikes,
            empty=self.empty,
            seen=self.seen,
        )
