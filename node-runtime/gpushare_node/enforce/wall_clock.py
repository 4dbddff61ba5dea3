"""WallClock: what time it is since 1970, of which a jump is believed only when it lasts.

A date that is a year ahead for a moment, before the host's time is set, would end every exemption from a cap for good.
"""

from collections.abc import Callable

from gpushare_node.core.clock import Clock
from gpushare_node.core.structs import Struct

SLACK_SECONDS = 60.0
"""By so much a host's date may be put right, or drift, without being a jump."""

_BELIEF_SECONDS = 600.0
"""For so long a date that has jumped must go on evenly before it counts."""


class WallClock(Struct, frozen=False):
    """The date, as monotonic time and `wall` agree on it. What stands when the program starts is believed."""

    clock: Clock
    wall: Callable[[], float]
    _doubted: tuple[float, float] | None = None
    """Another offset that the date has had, and since when."""

    def __post_init__(self) -> None:
        self._offset = self.wall() - self.clock.now()

    def now(self) -> float:
        """Seconds since 1970."""
        now = self.clock.now()
        offset = self.wall() - now
        if abs(offset - self._offset) <= SLACK_SECONDS:
            self._offset, self._doubted = offset, None
        elif self._doubted is None or abs(offset - self._doubted[0]) > SLACK_SECONDS:
            self._doubted = offset, now
        elif now - self._doubted[1] >= _BELIEF_SECONDS:
            self._offset, self._doubted = offset, None
        return now + self._offset
