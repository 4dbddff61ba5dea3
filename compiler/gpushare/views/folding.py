"""Pools of which the same is said, told once with the names of all: five changed pools are read as one change."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

_T = TypeVar("_T")


def alike(pools: Iterable[tuple[str, Hashable, _T]]) -> list[tuple[list[str], _T]]:
    """Return pools of which the same is said together: their names, and what is said of the first.

    Each of `pools` is a name, what has to be equal, and what is said.
    """
    groups: dict[Hashable, tuple[list[str], _T]] = {}
    for name, same, said in pools:
        groups.setdefault(same, ([], said))[0].append(name)
    return list(groups.values())
