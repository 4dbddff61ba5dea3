"""Exemptions: a container that ran before its pool's first cap is warned, not terminated, for the time in the policy. Pure.

No container gets a second one: the notice is stored with the container, its date is never later than the longest notice that
a policy gave it, and an exemption that has ended stays ended under every later policy.
"""

from gpushare_node.adapters.host.state_files import Notice
from gpushare_node.contract.struct import replace
from gpushare_node.guard.inputs import Cap, CapAction, Exemption


def renew(notice: Notice | None, *, since: float, seconds: int | None, now: float) -> Notice:
    """Return the notice under a policy that gives `seconds` (None: as long as the container runs). Times are since 1970.

    `since` is when the cap was introduced, for a container that has no notice yet.
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
