"""Wording that messages share."""

from collections.abc import Sequence


def join_first(names: Sequence[str], limit: int) -> str:
    """Return `a, b`, or `a, b and 7 more` if there are more than `limit`; empty for no names."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more
