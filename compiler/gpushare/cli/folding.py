"""Equal entries as one, with the names of all: for clusters with more pools than anyone reads."""

from collections.abc import Hashable, Iterable
from typing import TypeVar

from gpushare.cli.terminal import BOLD, Style, wrapped
from gpushare.core.printable import visible
from gpushare.core.wording import few

_Content = TypeVar("_Content", bound=Hashable)

MAX_ROWS = 100
"""More than any terminal shows: a table with more rows has one for all pools of which it says the same."""


def alike(entries: Iterable[tuple[str, _Content]]) -> dict[_Content, list[str]]:
    """Return the names of what has the same content, in the order of the first of each."""
    names: dict[_Content, list[str]] = {}
    for name, content in entries:
        names.setdefault(content, []).append(name)
    return names


def rows(entries: Iterable[tuple[str, _Content]]) -> dict[_Content, list[str]] | None:
    """Return the same as `alike` for a table with too many rows; None for one that is shown whole."""
    listed = list(entries)
    return alike(listed) if len(listed) > MAX_ROWS else None


def short(names: list[str]) -> str:
    """Return the names as they are written in a row."""
    return few(names, 1)


def all_names(groups: Iterable[list[str]], style: Style) -> str:
    """Return every name of the groups that were shown in short; empty if none was."""
    lines = [f"  {visible(', '.join(names))}" for names in groups if len(names) > 1]
    if not lines:
        return ""
    return style.paint("POOLS ALIKE", BOLD) + "\n" + "".join(wrapped(line, style, indent=4) for line in lines)
