"""Windows by the wall clock: what they say is compared with every minute of the zone's clock, counted one by one."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from gpushare_node.contract.windows import DAYS, Position, Window, locate

MINUTE, HOUR, DAY = 60, 3600, 24 * 3600


def at(text: str) -> float:
    """A date in UTC in seconds since 1970."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def window(days: str, start: str, hours: float, zone: str) -> Window:
    return Window(days=tuple(days.split()), start=start, duration_seconds=int(hours * HOUR), timezone=zone)


@cache
def minutes(zone: str, day: str) -> tuple[tuple[int, int, int], ...]:
    """Each minute from three days before to eight after that day, its local date and the minute that the clock shows."""
    noon, clock = int(at(f"{day}T12:00")), ZoneInfo(zone)
    local = ((now, datetime.fromtimestamp(now, clock)) for now in range(noon - 3 * DAY, noon + 8 * DAY, MINUTE))
    return tuple((now, shown.toordinal(), shown.hour * 60 + shown.minute) for now, shown in local)


def counted(one: Window, day: str) -> Iterator[int]:
    """The openings, by going through every minute: the first of a date at which the clock shows the start or later."""
    counting = minutes(one.timezone, day)
    opened = {counting[0][1]}
    for now, date, minute in counting:
        start = int(one.start[:2]) * 60 + int(one.start[3:])
        if minute >= start and date not in opened and DAYS[(date - 1) % 7] in one.days:
            opened.add(date)
            yield now


CHANGES = [
    ("Europe/Zurich", "2026-03-29", "forward at 02:00"),
    ("Europe/Zurich", "2026-10-25", "back at 03:00"),
    ("America/New_York", "2026-03-08", "forward at 02:00"),
    ("America/St_Johns", "2026-11-01", "back at 02:00, half an hour from full hours"),
    ("Australia/Lord_Howe", "2026-10-04", "forward by half an hour"),
    ("Asia/Beirut", "2026-03-29", "forward at midnight"),
    ("Asia/Beirut", "2026-10-25", "back at midnight"),
    ("America/Havana", "2026-11-01", "back at 01:00 to midnight"),
    ("America/Nuuk", "2026-03-28", "forward over midnight"),
    ("America/St_Johns", "2006-10-29", "back at 00:01 to the day before"),
    ("Pacific/Apia", "2011-12-30", "the day is skipped"),
    ("Africa/Casablanca", "2026-02-15", "back for Ramadan"),
    ("Asia/Kathmandu", "2026-06-01", "no change, a quarter of an hour from full hours"),
    ("UTC", "2026-06-01", "no change"),
]


@pytest.mark.parametrize(("zone", "day", "why"), CHANGES)
@pytest.mark.parametrize("start", ["00:00", "00:30", "01:30", "02:00", "02:15", "03:00", "22:00", "23:45"])
def test_openings_are_those_that_counting_minutes_finds(zone: str, day: str, why: str, start: str) -> None:
    noon = at(f"{day}T12:00")
    for days in (" ".join(DAYS), DAYS[datetime.fromisoformat(day).weekday()]):
        one = window(days, start, 2, zone)
        expected = [now for now in counted(one, day) if now > noon - 2 * DAY]
        now: float | None = noon - 2 * DAY
        for opening in expected[:5]:
            now = locate([one], now or 0).opens_at
            assert now == opening, why


@pytest.mark.parametrize(("zone", "day", "why"), CHANGES)
def test_a_window_is_open_for_its_duration_in_elapsed_time(zone: str, day: str, why: str) -> None:
    one = window(" ".join(DAYS), "23:30", 6.5, zone)
    noon = int(at(f"{day}T12:00"))
    for opened in (now for now in counted(one, day) if noon - DAY < now < noon + DAY):
        assert [locate([one], opened + hours * HOUR).left_seconds / HOUR for hours in (0, 2, 6)] == [6.5, 4.5, 0.5], why
        assert locate([one], opened + 6.5 * HOUR).left_seconds == 0, why


NEW_YEAR = "2026-12-31T23:00"
"""A Thursday."""


@pytest.mark.parametrize(
    ("windows", "now", "left_hours", "opening"),
    [
        ([window("Sat", "22:00", 6, "UTC")], "2026-11-28T21:59", 0, "Sat 2026-11-28 22:00 UTC"),
        ([window("Sat", "22:00", 6, "UTC")], "2026-11-28T22:00", 6, "Sat 2026-12-05 22:00 UTC"),
        ([window("Sat", "22:00", 6, "UTC")], "2026-11-29T03:00", 1, "Sat 2026-12-05 22:00 UTC"),
        ([window("Sat", "22:00", 6, "UTC")], "2026-11-29T04:00", 0, "Sat 2026-12-05 22:00 UTC"),
        ([window("Sat", "22:00", 6, "Asia/Tokyo")], NEW_YEAR, 0, "Sat 2027-01-02 22:00 Asia/Tokyo (2027-01-02 13:00 UTC)"),
        ([window("Fri", "00:00", 1, "Asia/Tokyo")], NEW_YEAR, 0, "Fri 2027-01-08 00:00 Asia/Tokyo (2027-01-07 15:00 UTC)"),
        ([window("Thu", "20:00", 168, "UTC")], NEW_YEAR, 165, "Thu 2027-01-07 20:00 UTC"),
        ([window("Thu", "20:00", 4, "UTC"), window("Thu", "22:00", 4, "UTC")], NEW_YEAR, 3, "Thu 2027-01-07 20:00 UTC"),
        ([window("Mon", "20:00", 4, "UTC"), window("Fri", "01:00", 4, "UTC")], NEW_YEAR, 0, "Fri 2027-01-01 01:00 UTC"),
    ],
)  # fmt: skip
def test_what_is_left_and_what_comes_next(windows: list[Window], now: str, left_hours: float, opening: str) -> None:
    position = locate(windows, at(now))
    assert (position.left_seconds, position.opening) == (left_hours * HOUR, opening)


def test_a_window_over_midnight_belongs_to_the_day_on_which_it_opens() -> None:
    one = window("Sat", "22:00", 6, "Europe/Zurich")
    open_at = [
        now
        for now in (datetime(2026, 11, 23, tzinfo=ZoneInfo("Europe/Zurich")) + timedelta(hours=hour) for hour in range(7 * 24))
        if locate([one], now.timestamp()).left_seconds
    ]
    assert [f"{now:%a %H}" for now in open_at] == ["Sat 22", "Sat 23", "Sun 00", "Sun 01", "Sun 02", "Sun 03"]


@pytest.mark.parametrize("zone", ["Mars/Base", "Europe", "../etc/passwd", "/etc/localtime", "europe/", "x" * 300, "\0"])
def test_a_zone_that_the_database_lacks_never_opens_a_window(zone: str) -> None:
    unknown = window("Sat", "22:00", 6, zone)
    assert locate([unknown], at(NEW_YEAR)) == Position(left_seconds=0, opens_at=None, opening="", unknown_zones=(zone,))
    both = locate([unknown, window("Sat", "22:00", 6, "UTC")], at(NEW_YEAR))
    assert (both.opening, both.unknown_zones) == ("Sat 2027-01-02 22:00 UTC", (zone,))
