"""WallClock: the time in seconds since 1970; it accepts a jump of the host's clock only if the jump lasts.

A date that is a year ahead for a moment, before the host's time is set, would permanently end every exemption from a cap.
"""

from collections.abc import Callable

from gpushare_node.contract.struct import Struct
from gpushare_node.core.clock import Clock

SLACK_SECONDS = 60.0
"""How far a host's date may be corrected, or drift, without counting as a jump."""

_BELIEF_SECONDS = 600.0
"""How long a date that jumped must advance evenly before it is accepted."""


class WallClock(Struct, frozen=False):
    """The date on which monotonic time and `wall` agree. The date at the start of the program is accepted."""

    clock: Clock
    wall: Callable[[], float]
    _doubted: tuple[float, float] | None = None
    """An offset that is not accepted yet, and since when the date has had it."""

    def __post_init__(self) -> None:
        self._offset = self.wall() - self.clock.now()

    def now(self) -> float:
        """Return the seconds since 1970."""
        now = self.clock.now()
        offset = self.wall() - now
        if abs(offset - self._offset) <= SLACK_SECONDS:
            self._offset, self._doubted = offset, None
        elif self._doubted is None or abs(offset - self._doubted[0]) > SLACK_SECONDS:
            self._doubted = offset, now
        elif now - self._doubted[1] >= _BELIEF_SECONDS:
            self._offset, self._doubted = offset, None
        return now + self._offset
