"""The text of a CSV to its rows: each cell with its line and column. Owns quotes, delimiters and line breaks.

The standard library's reader does not tell where a cell begins, and a quote that is never closed makes it swallow all rows
that follow. Here such a row ends with its line.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import accumulate

DELIMITERS = (",", ";", "\t", "|")
_LINE = re.compile(r"[^\r\n]*")
_MOST_LINES = 50
"""Over which a cell in quotes may extend."""


class Row:
    """One row: the texts of its cells, without quotes and the space around them.

    `problem` is empty, or why its cells cannot be told apart; then it has none.
    """

    __slots__ = ("_ends", "_record", "line", "problem", "texts")

    def __init__(self, line: int, record: str, texts: list[str], ends: list[int], problem: str = "") -> None:
        self.line = line
        self.texts = texts
        self.problem = problem
        self._record = record
        self._ends = ends

    def place(self, index: int) -> tuple[int, int]:
        """Return the line and the column where a cell begins, both counted from 1."""
        at = self._ends[index - 1] + 1 if index else 0
        at += len(self._record[at:]) - len(self._record[at:].lstrip(" "))
        return self.line + self._record.count("\n", 0, at), at - self._record.rfind("\n", 0, at)


def delimiter(text: str, known: Sequence[str]) -> str:
    """Return the delimiter by which most known names are found in the first line that is not empty."""
    start = re.search(r"\S", text)
    line = _LINE.match(text, start.start()) if start else None
    header = line[0] if line else ""

    def names(one: str) -> int:
        return len({name.strip().strip('"').lower() for name in header.split(one)} & set(known))

    return max(DELIMITERS, key=names)


def rows(text: str, mark: str) -> Iterator[Row]:
    """Yield the rows that are not empty, with `mark` between their cells. A line break in quotes belongs to its cell."""
    lines = re.split(r"\r\n|\n|\r", text)
    pattern = re.compile(rf' *"((?:[^"]|"")*)" *(?={re.escape(mark)}|\Z)|([^{re.escape(mark)}]*)')
    number = 0
    while number < len(lines):
        first = number + 1
        record = lines[number]
        number += 1
        if not record.strip():
            continue
        if '"' not in record:
            parts = record.split(mark)
            yield Row(
                first,
                record,
                [part.strip() for part in parts],
                [end - 1 for end in accumulate(len(part) + 1 for part in parts)],
            )
            continue
        whole, used = record, 0
        quotes = record.count('"')
        while quotes % 2 and used < _MOST_LINES and number + used < len(lines):
            following = lines[number + used]
            whole, used, quotes = f"{whole}\n{following}", used + 1, quotes + following.count('"')
        if quotes % 2:
            yield Row(first, record, [], [], "a quote is not closed")
            continue
        number += used
        yield Row(first, whole, *_quoted(whole, pattern))


def _quoted(record: str, pattern: re.Pattern[str]) -> tuple[list[str], list[int]]:
    """Return the texts of cells of which some are in quotes, and the offset behind each."""
    texts: list[str] = []
    ends: list[int] = []
    at = 0
    while at <= len(record) and (found := pattern.match(record, at)):
        text = found[2] if found[1] is None else found[1].replace('""', '"')
        texts.append(text.strip())
        at = found.end() + 1
        ends.append(at - 1)
    return texts, ends
