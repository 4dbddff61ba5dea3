"""Court: the guard with its history, and with the last answer at hand: where nothing has changed, nothing is judged again.

Most seconds on most nodes are like the one before. The guard is pure and counts time only where somebody is over a cap, is
being ended, or has never been seen; without any of these, equal readings have equal verdicts.
"""

from dataclasses import replace

from gpushare_node.guard import judge
from gpushare_node.guard.ledger import History
from gpushare_node.guard.reading import Reading, Settings
from gpushare_node.guard.verdicts import Verdict


class Court:
    """Judges cycle after cycle. For one thread."""

    def __init__(self, settings: Settings) -> None:
        self.history = History()
        self.settings = settings
        self._reading: Reading | None = None
        self._verdicts: tuple[Verdict, ...] = ()

    def judge(self, reading: Reading, now: float) -> tuple[Verdict, ...]:
        """What the guard says of this reading. Identities and grants that are the same must be the same objects."""
        if self._is_as_before(reading):
            self.history = replace(self.history, now=max(now, self.history.now or now))
        else:
            self._verdicts, self.history = judge(reading, self.history, now, self.settings)
            self._reading = reading
        return self._verdicts

    def stop_choosing(self) -> None:
        """Go on with the victims that there are, and choose no other: the program ends."""
        self.settings = replace(self.settings, kills_per_minute=0)
        self._reading = None

    def _is_as_before(self, reading: Reading) -> bool:
        former, history = self._reading, self.history
        return (
            former is not None
            and not (history.offences or history.victims or history.empty)
            and reading.identities is former.identities
            and reading.grants is former.grants
            and reading.devices == former.devices
        )
