"""A workload: PodRequest, LeftOut, Workload; and the texts of its amounts of GPU and times. Knows neither pools nor cards.

Every text gives a value or the reason why it has none.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from datetime import UTC, datetime
from fractions import Fraction
from functools import cache
from itertools import accumulate
from typing import TypeVar

from gpushare.core.diagnostics import HintedError
from gpushare.core.units import MIB, meant_sizes, parse_quantity
from gpushare.core.wording import shorten
from gpushare_node.contract.struct import Struct

_Key = TypeVar("_Key", bound=Hashable)

MAX_PODS = 200_000
"""The largest workload."""


class PodRequest(Struct):
    """What one pod asks for. Exactly one of `memory_bytes`, `milli`, `gpus` and `resource` is set.

    `memory_bytes` is memory of one GPU; `milli` are thousandths of one GPU, its memory and compute alike; `gpus` are whole
    GPUs; `resource` is an extended resource by its name, of which it requests `count`, and one container `per_container` at
    most (None: all of it). `pool` is the only pool that may serve it (its nodeSelector), `cards` the only cards, if any are
    named. `arrival` and `duration` are seconds from the workload's beginning; `duration` None: the pod stays. `line` is where
    the file has it, counted from 1.
    """

    namespace: str
    name: str
    memory_bytes: int | None = None
    milli: int | None = None
    gpus: int | None = None
    resource: str | None = None
    count: int = 1
    per_container: int | None = None
    pool: str = ""
    cards: tuple[str, ...] = ()
    arrival: int = 0
    duration: int | None = None
    line: int = 0


class LeftOut(Struct):
    """A row or object that is not simulated, and why. `column` is 0 if the whole row is meant."""

    line: int
    column: int
    reason: str


class Workload(Struct):
    """The pods in the order of the file: each row or object is either one of them or left out.

    `assumed` says in words what the file does not say and was assumed, `unused` are columns that have no meaning here.
    """

    source: str
    pods: tuple[PodRequest, ...]
    left_out: tuple[LeftOut, ...] = ()
    assumed: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


class WorkloadError(HintedError):
    """Nothing of a file can be used."""


def most_at_once(pods: Iterable[PodRequest], key: Callable[[PodRequest], _Key]) -> dict[_Key, int]:
    """Return for each key how many pods with it there are at once, at most and at least one, as if none waited."""
    changes: dict[_Key, Counter[int]] = {}
    for pod in pods:
        each = changes.setdefault(key(pod), Counter())
        each[pod.arrival] += 1
        if pod.duration is not None:
            each[pod.arrival + pod.duration] -= 1
    return {one: max(1, *accumulate(each[time] for time in sorted(each))) for one, each in changes.items()}


MAX_GPUS = 10_000
MAX_SECONDS = 100 * 365 * 86400
MILLI = 1000

_NUMBER = re.compile(r"[0-9]{1,18}(?:\.[0-9]{1,18})?\Z")
_COMMA = re.compile(r"[0-9]+,[0-9]+ ?%?\Z")
_DURATION = re.compile(r"(?=[0-9])(?:([0-9]{1,6})d)?(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,12})s)?\Z")
_MOMENT = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ][0-9]{2}:[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,9})?)?([Zz]|[-+][0-9]{2}:[0-9]{2})?\Z"
)
_UNIX = 10**9
"""From here on a bare number is a time of the calendar: the tenth digit came in September 2001."""
_UNIX_END = 10**11
_EARLIEST = 946_684_800
"""The year 2000: clocks that were never set begin in 1970."""


class BadCellError(ValueError):
    """Why a text has no value, in words that follow the name of its column."""


class Moment(Struct):
    """A time: seconds from the workload's beginning, or, `is_calendar`, since 1970. `has_zone` False: UTC was assumed."""

    seconds: int
    is_calendar: bool
    has_zone: bool = True


def parse_memory(text: str) -> int:
    """Return the bytes of a Kubernetes quantity of memory; a bare number counts bytes. Raises BadCellError."""
    size = parse_quantity(text)
    if size is None:
        meant = meant_sizes(text)
        hint = " or ".join(meant) if meant else "it as in an intent, such as 4Gi or 3500Mi"
        raise BadCellError(f"{shorten(text)!r} is no quantity of memory: write {hint}")
    if size < MIB:
        bare = text.isdecimal()
        hint = f"a bare number counts bytes; for MiB write {text}Mi, for GiB {text}Gi" if bare else "write it in Mi or Gi"
        raise BadCellError(f"{shorten(text)} is less than 1Mi: {hint}")
    return size


def parse_share(text: str) -> int:
    """Return thousandths of a GPU, rounded down, of a text such as `0.25`, `1/4` or `25%`. Raises BadCellError."""
    if _COMMA.match(text):
        raise BadCellError(f"{shorten(text)!r} is no share: write {shorten(text.replace(',', '.'))}")
    number, slash, below = (part.strip() for part in text.partition("/"))
    percent = number.endswith("%") and not slash
    number = number.removesuffix("%").strip() if percent else number
    if not _NUMBER.match(number) or (slash and not _NUMBER.match(below)):
        raise BadCellError(f"{shorten(text)!r} is no share: write 0.25, 1/4 or 25%")
    divisor = Fraction(below) if slash else Fraction(100 if percent else 1)
    if not divisor:
        raise BadCellError(f"{shorten(text)!r} divides by 0")
    part = Fraction(number) / divisor
    if part > 1:
        meant = f": write {number}%, or {number} in a column gpus" if number == text and part <= 100 else ""
        raise BadCellError(f"{shorten(text)} is more than a GPU{meant}")
    milli = int(part * MILLI)
    if not milli:
        raise BadCellError(f"{shorten(text)} is less than a thousandth of a GPU")
    return milli


@cache
def is_exact(text: str, milli: int) -> bool:
    """Whether a share that could be read is a whole number of thousandths."""
    number, _, below = text.replace("%", "/100").partition("/")
    return Fraction(number.strip()) * MILLI == milli * Fraction(below.strip() or 1)


def parse_count(text: str, what: str) -> int:
    """Return a number from 1 on; `what` it counts. Raises BadCellError."""
    if _NUMBER.match(text) and "." in text and 0 < float(text) < 1 and what == "GPUs":
        raise BadCellError(f"{text} is a part of a GPU: write it in a column share")
    if not (text.isascii() and text.isdecimal()) or len(text) > 18 or not 1 <= int(text) <= MAX_GPUS:
        raise BadCellError(f"{shorten(text)!r} is no number of {what} from 1 to {MAX_GPUS}")
    return int(text)


def parse_moment(text: str) -> Moment:
    """Return a time: seconds or a duration from the beginning, RFC 3339, or seconds since 1970. Raises BadCellError."""
    if found := _MOMENT.match(text):
        try:
            parsed = datetime.fromisoformat(text.upper())
        except ValueError as problem:
            raise BadCellError(f"{text} does not exist in the calendar") from problem
        since = math.floor((parsed.replace(tzinfo=parsed.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
        if since < _EARLIEST:
            raise BadCellError(f"{text} is before the year 2000: a clock that was not set")
        return Moment(seconds=since, is_calendar=True, has_zone=found[1] is not None)
    if _NUMBER.match(text):
        seconds = math.floor(Fraction(text))
        if seconds >= _UNIX_END:
            raise BadCellError(f"{shorten(text)} seconds are no time: are they milliseconds?")
        if seconds >= _UNIX:
            return Moment(seconds=seconds, is_calendar=True)
        return Moment(seconds=seconds, is_calendar=False)
    seconds = _of_duration(text, "no time: write seconds, 90s, 2h or 2026-10-01T06:00:00Z")
    return Moment(seconds=seconds, is_calendar=False)


def parse_duration(text: str) -> int:
    """Return the seconds of a duration such as `90`, `90s`, `5m`, `2h`, `1d` or `1h30m`, rounded up. Raises BadCellError."""
    if _NUMBER.match(text):
        seconds = math.ceil(Fraction(text))
    else:
        seconds = _of_duration(text, "no duration: write seconds, 90s, 5m, 2h or 1d")
    if not seconds:
        raise BadCellError("0 is no duration: leave it empty for a pod that stays")
    if seconds > MAX_SECONDS:
        raise BadCellError(f"{shorten(text)} is more than 100 years: is it in milliseconds?")
    return seconds


def _of_duration(text: str, otherwise: str) -> int:
    found = _DURATION.match(text)
    if not found:
        raise BadCellError(f"{shorten(text)!r} is {otherwise}")
    seconds = sum(int(part or 0) * unit for part, unit in zip(found.groups(), (86400, 3600, 60, 1), strict=True))
    if seconds > MAX_SECONDS:
        raise BadCellError(f"{shorten(text)} is more than 100 years")
    return seconds
