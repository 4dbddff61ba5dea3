"""Folds pools with equal texts into one entry with all their names: five pools that change alike are one change."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


def alike(pools: Iterable[tuple[str, Hashable, _T]]) -> list[tuple[list[str], _T]]:
    """Return one entry for all pools with equal texts: their names, and the text of the first.

    Each of `pools` is a name, the text that is compared, and the text that is shown.
    """
    groups: dict[Hashable, tuple[list[str], _T]] = {}
    for name, same, text in pools:
        groups.setdefault(same, ([], text))[0].append(name)
    return list(groups.values())
