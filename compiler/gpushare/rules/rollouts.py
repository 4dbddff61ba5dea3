"""Rules on the windows of rollouts: GS219 and GS220."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from gpushare.core.diagnostics import Path
from gpushare.core.units import show_duration
from gpushare.core.wording import join_first, join_words, nearest
from gpushare.intent.reader import read_rollout
from gpushare.rules.rule import Problem, RuleContext, pool_path, rule
from gpushare.vendors import VENDORS, of
from gpushare_node.contract.policy import Rollout
from gpushare_node.contract.windows import Window, zone_of

_NO_ZONES = frozenset({"localtime", "posixrules", "posix", "right"})
"""Files and folders beside the zones: what the first two are differs by machine, the folders repeat all zones."""
_LONGEST_SECONDS = 7 * 24 * 3600
_ABBREVIATIONS = {
    **dict.fromkeys(("CET", "CEST", "MEZ", "MESZ"), ("Europe/Berlin", "Europe/Paris")),
    **dict.fromkeys(("WET", "WEST"), ("Europe/Lisbon",)),
    **dict.fromkeys(("EET", "EEST"), ("Europe/Athens", "Europe/Helsinki")),
    **dict.fromkeys(("GMT", "BST"), ("Europe/London",)),
    **dict.fromkeys(("EST", "EDT", "ET"), ("America/New_York",)),
    **dict.fromkeys(("CST", "CDT", "CT"), ("America/Chicago",)),
    **dict.fromkeys(("MST", "MDT", "MT"), ("America/Denver",)),
    **dict.fromkeys(("PST", "PDT", "PT"), ("America/Los_Angeles",)),
    **dict.fromkeys(("AEST", "AEDT"), ("Australia/Sydney",)),
    "MSK": ("Europe/Moscow",),
    "IST": ("Asia/Kolkata",),
    "JST": ("Asia/Tokyo",),
    "KST": ("Asia/Seoul",),
}
"""Common abbreviations, which the database lacks, or has without daylight saving time: a region's zone in place of each."""


LATE_SECONDS = 600
"""A node notices an opening up to this late: its clock may have been set."""


@rule("GS219")
def check_zones(context: RuleContext) -> Iterator[Problem]:
    """A time zone that the database lacks. Without any database no zone is checked."""
    for path, window, _ in _windows(context):
        if not _is_known(window.timezone) and (known := _known_zones()) and window.timezone not in known:
            near = _near(window.timezone, known)
            hint = f"did you mean {join_words(near, 'or')}?" if near else "write a name such as Europe/Zurich, or UTC"
            yield Problem(message=f"unknown time zone {window.timezone}", hints=(hint,), path=(*path, "timezone"))


def _is_known(name: str) -> bool:
    """Whether the database certainly has the zone: its file is there, and not only for programs that ask for leap seconds."""
    return name.partition("/")[0] not in _NO_ZONES and zone_of(name) is not None


@cache
def _known_zones() -> tuple[str, ...]:
    """Return the names of the system's time zone database, sorted; empty if it has none. It reads each of its 600 files."""
    from zoneinfo import available_timezones  # noqa: PLC0415 - few intents have an unknown zone

    return tuple(sorted(available_timezones() - _NO_ZONES))


def _near(name: str, known: Sequence[str]) -> Sequence[str]:
    """Return the zones that are probably meant. What looks like an abbreviation may be hours from another one like it."""
    if name in _ABBREVIATIONS:
        return [zone for zone in _ABBREVIATIONS[name] if zone in known]
    city = [zone for zone in known if zone.rpartition("/")[2].lower() == name.rpartition("/")[2].lower()][:3]
    return city if name.isupper() else nearest(name, known) or city


@rule("GS220")
def check_durations(context: RuleContext) -> Iterator[Problem]:
    """A window of more than seven days, or one into which no drain and change ever fit."""
    for path, window, rollouts in _windows(context):
        seconds = window.duration_seconds
        changes = {name: _change_seconds(context, name) for name in rollouts}
        needed = {name: changes[name] + rollout.waiting_seconds + LATE_SECONDS for name, rollout in rollouts.items()}
        short = [name for name, least in needed.items() if seconds < least]
        if seconds > _LONGEST_SECONDS:
            message, hint = "a window is open for at most seven days", "write 168h or less; windows may follow each other"
            yield Problem(message=message, hints=(hint,), path=(*path, "duration"))
        elif short:
            least = max(needed.values())
            whose = f" of pool {join_first(pools)}" if (pools := [name for name in short if name]) else ""
            message = f"no change{whose} ever begins in a window of {show_duration(seconds)}"
            change_seconds = max(changes[name] for name, seconds in needed.items() if seconds == least)
            drain_seconds = least - change_seconds - LATE_SECONDS
            parts = f"the drain's {show_duration(drain_seconds)}, the change's {show_duration(change_seconds)}"
            ways = f"{show_duration(least)} or more" + (", or a shorter drainTimeout" if drain_seconds else "")
            if least > _LONGEST_SECONDS:
                most = show_duration(_LONGEST_SECONDS - change_seconds - LATE_SECONDS)
                ways = f"a shorter drainTimeout: a window is open for 168h at most, so it fits a drain of {most} at most"
            yield Problem(
                message=message,
                hints=(f"{parts} and {show_duration(LATE_SECONDS)} until a node begins must fit", f"write {ways}"),
                path=(*path, "duration"),
                causes=tuple(cause for name in short for cause in _causes(context, name)),
            )


def _change_seconds(context: RuleContext, name: str) -> int:
    """Return how long a change of this pool may take; the least of all where no pool is named, or its card is not known."""
    card = next((card for pool, card in context.pools_with_card() if pool.name == name), None)
    return min(one.window_seconds for one in VENDORS.values()) if card is None else of(card).window_seconds


def _causes(context: RuleContext, name: str) -> Iterator[Path]:
    """Yield where the time that a drain has may have been written or removed: for one pool, or of the cluster if no name."""
    own = _spec(context).get("pools", {}).get(name, {}).get("rollout", {})
    for field in ("drainTimeout", "onBusy"):
        if name:
            yield "spec", "pools", name, "rollout", field
        if field not in own:
            yield "spec", "rollout", field


def _spec(context: RuleContext) -> Mapping[str, Any]:
    found: Mapping[str, Any] = context.document.get("spec", {})
    return found


def _windows(context: RuleContext) -> Iterator[tuple[Path, Window, Mapping[str, Rollout]]]:
    """Yield each window where it is written, with the rollouts by pool that have it; the cluster's under "" if no pool has."""
    spec = _spec(context)
    places: dict[Path, dict[str, Rollout]] = {}
    for pool in context.intent.pools:
        own = spec.get("pools", {}).get(pool.name, {}).get("rollout", {})
        place = pool_path(pool, "rollout") if "windows" in own or "rollout" not in spec else ("spec", "rollout")
        places.setdefault(place, {})[pool.name] = pool.rollout
    if "rollout" in spec:
        places.setdefault(("spec", "rollout"), {"": read_rollout(spec["rollout"])})
    for place, rollouts in places.items():
        for number, window in enumerate(next(iter(rollouts.values())).windows):
            yield (*place, "windows", number), window, rollouts
