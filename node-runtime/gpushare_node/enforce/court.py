"""Court: the guard with its history, and with the last answer at hand: where nothing matters that has changed, it is not asked.

Most seconds on most nodes are like the one before. The guard is pure and counts time only where somebody is over a cap, is
being ended, owes for a time over its cap, or has never been seen; without any of these, equal readings have equal verdicts,
and those that differ in uses alone have what `guard.calm` says.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from gpushare_node.guard.calm import Calm
from gpushare_node.guard.judge import judge
from gpushare_node.guard.ledger import History
from gpushare_node.guard.reading import Reading, Settings
from gpushare_node.guard.sight import Unit
from gpushare_node.guard.verdicts import Observe, Reason, Report, Verdict

_LET_GO_SECONDS = 300
"""How long an offender whose processes cannot be signalled is left alone: the next signal would not reach them either."""


class Court:
    """Judges cycle after cycle. For one thread."""

    def __init__(self, settings: Settings) -> None:
        self.history = History()
        self.settings = settings
        self._reading: Reading | None = None
        self._verdicts: tuple[Verdict, ...] = ()
        self._calm: Calm | None = None
        self._has_strays = False
        self.observe: Callable[[], list[Observe]] = list
        """How everybody stood when this was last judged. Worked out when it is called, from any thread and at any time."""
        self._let_go: dict[Unit, float] = {}
        self._is_ending = False

    def judge(self, reading: Reading, now: float) -> tuple[Verdict, ...]:
        """What the guard says of this reading, without observations where it need not be asked: `observe` has them all.

        Identities and grants that are the same must be the same objects.
        """
        self._take_up(now)
        if self._is_repeated(reading, now):
            self.history = replace(self.history, now=max(now, self.history.now or now))
        else:
            self._verdicts, self.history = judge(reading, self.history, now, self.settings)
            self._has_strays = any(isinstance(one, Report) and one.reason is Reason.STRAY for one in self._verdicts)
            self._calm, self.observe = None, partial(_observations, self._verdicts)
        self._reading = reading
        if self._is_ending:
            # Nothing is left of the budgets because we end, not because of too many offenders.
            return tuple(one for one in self._verdicts if not (isinstance(one, Report) and one.reason is Reason.BUDGET_SPENT))
        return self._verdicts

    @property
    def is_counting(self) -> bool:
        """Whether somebody owes for a time over its cap: then time counts, and more looks tell more of it."""
        return bool(self.history.offences)

    def let_go(self, units: Collection[Unit], now: float) -> None:
        """These offenders cannot be ended: nobody waits for it, and nothing is tried for a while as long as they offend."""
        if not units:
            return
        victims = {unit: victim for unit, victim in self.history.victims.items() if unit not in units}
        self.history = replace(self.history, victims=victims)
        self._settle(units, is_settled=True)
        self._let_go.update(dict.fromkeys(units, now))

    def stop_choosing(self) -> None:
        """Go on with the victims that there are, and choose no other: the program ends."""
        self.settings = replace(self.settings, kills_per_minute=0)
        self._is_ending = True
        self._reading = None

    def _take_up(self, now: float) -> None:
        """Those who were let go long ago are offenders like others."""
        due = [unit for unit, at in self._let_go.items() if now - at >= _LET_GO_SECONDS]
        for unit in due:
            del self._let_go[unit]
        if due:
            self._settle(due, is_settled=False)

    def _settle(self, units: Collection[Unit], *, is_settled: bool) -> None:
        offences = {
            unit: offence._replace(is_settled=is_settled) if unit in units else offence
            for unit, offence in self.history.offences.items()
        }
        self.history = replace(self.history, offences=offences)

    def _is_repeated(self, reading: Reading, now: float) -> bool:
        """Whether the last answer holds for this reading too, perhaps with other observations."""
        former, history = self._reading, self.history
        if (
            former is None
            or history.offences or history.victims or history.empty
            or reading.identities is not former.identities
            or reading.grants is not former.grants
            or (reading.is_allocation_known != former.is_allocation_known and self._has_strays)
        ):  # fmt: skip
            return False
        if reading.devices == former.devices:
            return True
        if history.paused_since is not None or history.now is None or now <= history.now:
            return False
        self._calm = self._calm or Calm(former, self._verdicts)
        sums = self._calm.add_up(reading, self.settings)
        if sums is None:
            return False
        self._verdicts, self.observe = self._calm.reports, partial(self._calm.observe, sums)
        return True


def _observations(verdicts: tuple[Verdict, ...]) -> list[Observe]:
    return [one for one in verdicts if isinstance(one, Observe)]
