"""Wording that findings, reports and pages share: lists, counts, clipped text, layouts, the nearest known words.

Also text from outside, made safe to print: no input may control the terminal. Imports nothing of ours.
"""

import re
from collections.abc import Iterable, Sequence

_MAX_LENGTH = 40
_UNSAFE = "[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"


def shorten(text: object) -> str:
    """Return the first line of the text, at most 40 characters of it."""
    line = str(text).split("\n", 1)[0]
    return line if len(line) <= _MAX_LENGTH else line[: _MAX_LENGTH - 1] + "…"


def pluralize(number: int, noun: str) -> str:
    """Return `1 replica` or `3 replicas`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def join_words(words: Iterable[object], last: str = "and") -> str:
    """Return `a, b and c`."""
    *first, end = [str(word) for word in words] or [""]
    return f"{', '.join(first)} {last} {end}" if first else end


def join_first(words: Sequence[object], limit: int = 3) -> str:
    """Return `a, b and c`, or `a, b, c and 7 more` if there are more than `limit`."""
    if len(words) <= limit:
        return join_words(words)
    return join_words((*words[:limit], f"{len(words) - limit} more"))


def layout_text(layout: Iterable[tuple[str, int]]) -> str:
    """Return a MIG layout as it is written in an intent: `{3g.20gb: 1, 1g.5gb: 4}`, or `none`."""
    entries = ", ".join(f"{name}: {count}" for name, count in layout)
    return f"{{{entries}}}" if entries else "none"


def nearest(word: str, known: Iterable[str], limit: int = 3) -> tuple[str, ...]:
    """Return the known words that look like `word`, the most similar first."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and needed only when something is wrong

    return tuple(get_close_matches(word, sorted(known), n=limit, cutoff=0.6))


def gib(size_mib: float) -> str:
    """Return a size such as `39.25 GiB`, with four digits at most unless the whole number has more."""
    size = size_mib / 1024
    return f"{size:.4g} GiB" if abs(size) < 9999.5 else f"{size:,.0f} GiB"


def mib(size_mib: int | None) -> str:
    """Return a size such as `40192Mi`, `?` if unknown."""
    return "?" if size_mib is None else f"{size_mib}Mi"


def visible(text: str) -> str:
    """Return the text with control and direction characters escaped."""
    return text if text.isprintable() else re.sub(_UNSAFE, lambda match: match[0].encode("unicode_escape").decode(), text)


def clean(value: object, limit: int = 1_000) -> str:
    """Return text of a cluster as it may be printed: no control characters, at most `limit` characters. Not text: empty."""
    if not isinstance(value, str):
        return ""
    return visible(value if len(value) <= limit else value[: limit - 1] + "…")
