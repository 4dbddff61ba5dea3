"""Short lists for findings: the known words nearest to a wrong one, and the first few of many. Makes no findings."""

from collections.abc import Iterable, Sequence

from gpushare.rules.phrases import listing


def nearest(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """Return up to three of the known words that look like `word`, the most similar first."""
    from difflib import get_close_matches  # noqa: PLC0415 - slow to import, and needed only when something is wrong

    return tuple(get_close_matches(word, sorted(known), n=3, cutoff=0.5))


def few(words: Sequence[object], limit: int = 3) -> str:
    """Return `a, b and c`, or `a, b, c and 7 more` if there are more than `limit`."""
    if len(words) <= limit:
        return listing(words)
    return listing((*words[:limit], f"{len(words) - limit} more"))
