"""A document inside a text value, such as a config in a ConfigMap: read, with positions of the file around it.

Owns the way from a line and column of the inner text to those of the file, for every style in which YAML and JSON write text.
Where the inner text is not exactly what the file's lines contain (folded text), the position is that of the whole value.
"""

import re
from bisect import bisect_right
from functools import cached_property
from itertools import accumulate

from gpushare.cluster.importing.parts import FromFile, Part, Place, shifted
from gpushare.core.diagnostics import Path, Span
from gpushare.reading.source import Source
from gpushare_node.contract.struct import Struct

# A double-quoted text in pieces: an escaped line break, an escape, white space, other characters.
_PIECE = re.compile(r"\\\r?\n[ \t]*|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[ \t\r\n]+|[^\\\r\n \t]+")
_NAMED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "/": "/",
    " ": " ",
    "0": "\0",
    "e": "\x1b",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
    "\t": "\t",
}


class FromText(Struct):
    """A document inside the text value `outer`."""

    source: Source
    outer: Part

    def place(self, path: Path, *, on_key: bool) -> Place:
        """Return the position in the file of `outer`."""
        _, inner = FromFile(source=self.source).place(path, on_key=on_key)
        file, whole = self.outer.place()
        return file, (self.outside(inner) or whole) if inner else whole

    def pointer(self, path: Path) -> Path:
        """Return the path of the text value: a JSON pointer cannot go into it."""
        del path
        return self.outer.origin.pointer(self.outer.path)

    def outside(self, inner: Span) -> Span | None:
        """Return the span in the file; None if it cannot be told."""
        origin = self.outer.origin
        if not isinstance(origin, FromFile):
            return None
        offsets = self._offsets
        if offsets is not None:
            return self._by_offset(origin, inner, offsets)
        start = self._line_of_block
        ends = [self._column(start, line) for line in (inner.line, inner.end_line)] if start else [None]
        if start is None or None in ends:
            return None
        first, last = (end or 0 for end in ends)
        span = Span(
            line=start + inner.line,
            column=inner.column + first,
            end_line=start + inner.end_line,
            end_column=inner.end_column + last,
        )
        return shifted(span, origin.before)

    @cached_property
    def _written(self) -> tuple[str, int]:
        """The characters of the value in the file, and the offset of the first."""
        origin = self.outer.origin
        if not isinstance(origin, FromFile):
            return "", 0
        written = origin.source.written(self.outer.path)
        place = origin.source.offset(self.outer.path)
        return written, place

    @cached_property
    def _line_of_block(self) -> int | None:
        """The line of the `|` of a literal block."""
        origin = self.outer.origin
        written, start = self._written
        return origin.source.line_of(start) if isinstance(origin, FromFile) and written.startswith("|") else None

    def _column(self, start: int, line: int) -> int | None:
        """Return the indentation of the block in the file, from a line that both have."""
        origin = self.outer.origin
        outer = origin.source.line(start + line) if isinstance(origin, FromFile) else ""
        inner = self.source.line(line)
        return len(outer) - len(inner) if outer.endswith(inner) else None

    @cached_property
    def _offsets(self) -> tuple[list[int], list[int]] | None:
        """For text on one line or in quotes: the inner offset at which each piece begins, and its offset in the file."""
        written, start = self._written
        if written == self.source.text:
            return [0], [start]
        if not written.startswith('"'):
            return None
        pieces = [(found.start(), _meaning(found[0])) for found in _PIECE.finditer(written[1:-1])]
        if "".join(text for _, text in pieces) != self.source.text:
            return None
        inside = [0, *accumulate(len(text) for _, text in pieces)]
        return inside, [start + 1 + at for at, _ in pieces] + [start + len(written) - 1]

    def _by_offset(self, origin: FromFile, inner: Span, offsets: tuple[list[int], list[int]]) -> Span:
        inside, outside = offsets
        ends = []
        for line, column in ((inner.line, inner.column), (inner.end_line, inner.end_column)):
            wanted = self.source.start_of_line(line) + column - 1
            piece = bisect_right(inside, wanted) - 1
            ends.append(outside[piece] + wanted - inside[piece])
        return shifted(origin.source.span(*ends), origin.before)


def _meaning(piece: str) -> str:
    if piece[0] == "\\":
        if piece[1] in "\r\n":
            return ""
        return chr(int(piece[2:], 16)) if piece[1] in "xuU" and int(piece[2:], 16) < 0x110000 else _NAMED.get(piece[1], "\0")
    breaks = piece.count("\n")
    return "\n" * (breaks - 1) or " " if breaks else piece
