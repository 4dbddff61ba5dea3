"""Windows of a rollout: when they open by the wall clock of a time zone, and what is left of one. Pure but for that database.

A window opens at the first instant of its day at which the local clock shows its start or later: at the first of two equal
times where the clock is set back, directly after the jump where it is set forward over the start. It is open for its duration
in elapsed time, so on such a day its end differs on the clock. A day that the zone skips has no window.
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from gpushare_node.contract.struct import Struct

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_UTC = "UTC"
_DAYS_BACK = 8
"""A window is open for at most seven days, and its day in its zone begins up to a day before the instant in UTC."""
_DAYS_AHEAD = 15
"""Twice a week: a zone may skip a day."""


class Window(Struct):
    """A window opens on `days` (words of `DAYS`) at `start` (`HH:MM`) in `timezone`."""

    days: tuple[str, ...] = DAYS
    start: str
    duration_seconds: int
    timezone: str = _UTC


class Position(Struct):
    """Where an instant is among windows. `left_seconds` is what is left of the open window that closes last, 0 if none is open.

    `opening` is the next opening as text, in local time and UTC, and `opens_at` in seconds since 1970; None if there is none.
    `unknown_zones` are those that the system's time zone database lacks: their windows never open.
    """

    left_seconds: float
    opens_at: float | None
    opening: str
    unknown_zones: tuple[str, ...]


def locate(windows: Sequence[Window], now: float) -> Position:
    """Return where `now`, in seconds since 1970, is among the windows."""
    zones = {window.timezone: zone_of(window.timezone) for window in windows}
    found = [
        (at, window, zone)
        for window in windows
        if (zone := zones[window.timezone]) is not None
        for at in _openings(window, zone, now)
    ]
    left = max((at + window.duration_seconds - now for at, window, _ in found if at <= now), default=0.0)
    later = ((at, window.timezone, zone) for at, window, zone in found if at > now)
    following = min(later, key=lambda one: one[0], default=None)
    return Position(
        left_seconds=max(0.0, left),
        opens_at=None if following is None else following[0],
        opening="" if following is None else _describe(*following),
        unknown_zones=tuple(sorted(name for name, zone in zones.items() if zone is None)),
    )


def zone_of(name: str) -> tzinfo | None:
    """Return the zone of this name; None if the system's time zone database lacks it."""
    if name == _UTC:
        return UTC
    from zoneinfo import ZoneInfo  # noqa: PLC0415 - few pools have windows

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return None


def _openings(window: Window, zone: tzinfo, now: float) -> Iterator[float]:
    today = _local(now, zone).date()
    for number in range(-_DAYS_BACK, _DAYS_AHEAD + 1):
        day = today + timedelta(days=number)
        if DAYS[day.weekday()] in window.days and (at := _opening(day, window.start, zone)) is not None:
            yield at


def _opening(day: date, start: str, zone: tzinfo) -> float | None:
    """Return the first instant of the day at which the clock shows this time or later; None if the day has none."""
    wanted = datetime.combine(day, time.fromisoformat(start))
    at = wanted.replace(tzinfo=zone).timestamp()
    if _local(at, zone) == wanted:
        return at
    # The clock is set forward over the start: `before` lies before that, `at` after it.
    before = wanted.replace(tzinfo=zone, fold=1).timestamp()
    while at - before > 1:
        middle = (before + at) // 2
        if _local(middle, zone) < wanted:
            before = middle
        else:
            at = middle
    return at if _local(at, zone).date() == day else None


def _local(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(at, zone).replace(tzinfo=None, fold=0)


def _describe(at: float, name: str, zone: tzinfo) -> str:
    local, utc = datetime.fromtimestamp(at, zone), datetime.fromtimestamp(at, UTC)
    text = f"{DAYS[local.weekday()]} {local:%Y-%m-%d %H:%M} {name}"
    return text if name == _UTC else f"{text} ({utc:%Y-%m-%d %H:%M} UTC)"
