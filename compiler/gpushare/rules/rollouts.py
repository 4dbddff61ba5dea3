"""Rules on the windows of rollouts: GS219 and GS220."""

from collections.abc import Iterator
from difflib import get_close_matches

from gpushare.core.diagnostics import Finding, Path
from gpushare.core.wording import join_first, join_words
from gpushare.intent.types import Pool
from gpushare.intent.windows import CHANGE_SECONDS, LATE_SECONDS, Window, known_zones
from gpushare.rules.rule import Rule, RuleContext, pool_path

_LONGEST_SECONDS = 7 * 24 * 3600


def check_zones(context: RuleContext) -> Iterator[Finding]:
    """GS219: a time zone that the database lacks. Without any database no zone is checked."""
    windows = list(_windows(context))
    known = sorted(known_zones()) if windows else []
    for path, window, _ in windows:
        if known and window.timezone not in known:
            near = get_close_matches(window.timezone, known, n=3) or _of_city(window.timezone, known)
            hint = f"did you mean {join_words(near, 'or')}?" if near else "write a name such as Europe/Zurich, or UTC"
            yield Finding(code="GS219", message=f"unknown time zone {window.timezone}", hints=(hint,), path=(*path, "timezone"))


def _of_city(name: str, known: list[str]) -> list[str]:
    """Return the zones whose last word is this one, in any case."""
    return [zone for zone in known if zone.rpartition("/")[2].lower() == name.rpartition("/")[2].lower()][:3]


def check_durations(context: RuleContext) -> Iterator[Finding]:
    """GS220: a window of more than seven days, or one into which no drain and change ever fit."""
    for path, window, pools in _windows(context):
        seconds = window.duration_seconds
        needed = {pool.name: pool.rollout.fitting_seconds + LATE_SECONDS for pool in pools}
        short = [name for name, least in needed.items() if seconds < least]
        if seconds > _LONGEST_SECONDS:
            message, hint = "a window is open for at most seven days", "write 168h or less; windows may follow each other"
            yield Finding(code="GS220", message=message, hints=(hint,), path=(*path, "duration"))
        elif short:
            least = max(needed.values())
            message = f"no change of pool {join_first(short)} ever begins in a window of {_minutes(seconds)}"
            parts = f"the drain's {_minutes(least - CHANGE_SECONDS - LATE_SECONDS)}, the change's {_minutes(CHANGE_SECONDS)}"
            hints = (
                f"{parts} and {_minutes(LATE_SECONDS)} until a node begins must fit",
                f"write {_minutes(least)} or more, or a shorter drainTimeout",
            )
            yield Finding(code="GS220", message=message, hints=hints, path=(*path, "duration"))


def _minutes(seconds: int) -> str:
    return f"{seconds // 60}m{seconds % 60}s" if seconds % 60 else f"{seconds // 60}m"


def _windows(context: RuleContext) -> Iterator[tuple[Path, Window, list[Pool]]]:
    """Yield each window where it is written, with the pools that have it."""
    spec = context.document.get("spec", {})
    places: dict[Path, list[Pool]] = {}
    for pool in context.intent.pools:
        own = spec.get("pools", {}).get(pool.name, {}).get("rollout", {})
        place = pool_path(pool, "rollout") if "windows" in own or "rollout" not in spec else ("spec", "rollout")
        places.setdefault(place, []).append(pool)
    for place, pools in places.items():
        for number, window in enumerate(pools[0].rollout.windows):
            yield (*place, "windows", number), window, pools


RULES = (
    Rule(code="GS219", check=check_zones),
    Rule(code="GS220", check=check_durations),
)
