"""Exemptions: a container that ran before its pool's first cap is warned, not terminated, for the time in the policy.

This needs the date until when a container is exempt.
"""

from collections.abc import Callable

from gpushare_node.adapters.host.state_files import Notice
from gpushare_node.adapters.kube.informers import NodeInformer
from gpushare_node.contract.struct import Struct, replace
from gpushare_node.core.clock import Clock
from gpushare_node.guard.inputs import Cap, CapAction, Exemption

SLACK_SECONDS = 60.0
"""How far a host's date may be corrected, or drift, without counting as a jump."""

_BELIEF_SECONDS = 600.0
"""How long a date that jumped must advance evenly before it is accepted."""


class WallClock(Struct, frozen=False):
    """The date on which monotonic time and `wall` agree. The date at the start of the program is accepted.

    A jump of the host's clock is accepted only if it lasts: a date that is a year ahead for a moment, before the host's time is
    set, would permanently end every exemption from a cap.
    """

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


class FollowedNode(Struct, frozen=False):
    """The version of this node's Node object, which tells of changes; unknown until an informer follows it."""

    node: NodeInformer | None = None

    def version(self) -> str | None:
        """Return the object's resourceVersion as last received; None if it may be outdated."""
        return None if self.node is None else self.node.version()


def renew(notice: Notice | None, *, since: float, seconds: int | None, now: float) -> Notice:
    """Return the notice under a policy that gives `seconds` (None: as long as the container runs). Times are since 1970.

    `since` is when the cap was introduced, for a container that has no notice yet. No container gets a second notice: it is
    stored with the container, its date is never later than the longest notice that a policy gave it, and an exemption that has
    ended stays ended under every later policy.
    """
    if notice is None:
        notice = _begin(since, seconds)
    elif notice.is_over:
        return notice
    elif seconds is not None and notice.until is None:
        notice = _begin(now, seconds)
    elif seconds is not None and notice.until is not None and notice.seconds != seconds and now < notice.until:
        longest, shorter = notice.since + seconds, min(notice.until, int(now) + seconds)
        notice = replace(notice, until=longest if longest >= notice.until else shorter)
    if seconds is not None and notice.until is not None and notice.until > now + seconds:
        # The clock was ahead when the notice began.
        notice = replace(notice, since=int(now), until=int(now) + seconds)
    is_over = seconds is not None and notice.until is not None and now >= notice.until
    return replace(notice, seconds=seconds, is_over=is_over)


def _begin(since: float, seconds: int | None) -> Notice:
    return Notice(since=int(since), seconds=seconds, until=None if seconds is None else int(since) + seconds)


def exempt(cap: Cap, notice: Notice) -> Cap:
    """Return the cap that applies to a container with this notice."""
    if notice.is_over:
        return cap
    action = CapAction.WARN if cap.action in (CapAction.KILL, CapAction.EVICT) else cap.action
    return replace(cap, action=action, exemption=Exemption(until=None if notice.seconds is None else notice.until))
