"""What a terminal can show: width, colour, box characters; aligned text. Knows nothing of GPUs."""

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import TextIO

from gpushare.core.wording import visible
from gpushare_node.contract.struct import Struct

RED, YELLOW, GREEN, CYAN, BOLD, DIM = "31", "33", "32", "36", "1", "2"


class Style(Struct):
    """How to draw on one stream."""

    columns: int = 80
    coloured: bool = False
    boxes: bool = True
    whole_tables: bool = False
    """Tables are as wide as their content: a file, or a program that reads them, has no width."""
    colours: int = 0
    """How many colours a text and its background can have: 256, 2 ** 24, or 0 if fewer."""

    def paint(self, text: str, *styles: str) -> str:
        """Return the text in the given styles; unchanged without colour, or if it is empty."""
        return f"\x1b[{';'.join(styles)}m{text}\x1b[0m" if self.coloured and styles and text else text

    def shade(self, ink: str, *, ground: str) -> tuple[str, ...]:
        """Return the styles of text in one `#rrggbb` on another, as near as the terminal has them; none if it has too few."""
        if self.colours < 256:
            return ()
        if self.colours == 256:
            return f"38;5;{nearest_of_256(ink)}", f"48;5;{nearest_of_256(ground)}"
        return "38;2;{};{};{}".format(*channels(ink)), "48;2;{};{};{}".format(*channels(ground))

    @property
    def ellipsis(self) -> str:
        """The characters that replace text that was cut."""
        return "…" if self.boxes else "..."


def detect_style(stream: TextIO | None) -> Style:
    """Return what the stream can show. Colour needs a terminal that is not dumb, and no NO_COLOR (https://no-color.org)."""
    if stream is None:
        return Style()
    terminal = stream.isatty()
    wanted = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    given = _columns_of_environment()
    return Style(
        columns=max(40, given or _columns(stream, terminal)),
        coloured=terminal and wanted,
        boxes=_has_boxes(stream),
        whole_tables=not (terminal or given),
        colours=_colours() if terminal and wanted else 0,
    )


def _colours() -> int:
    """Return how many colours the terminal says that it has, if at least 256 (https://github.com/termstandard/colors)."""
    if os.environ.get("COLORTERM") in {"truecolor", "24bit"}:
        return 2**24
    return 256 if "256color" in os.environ.get("TERM", "") else 0


def _columns_of_environment() -> int:
    """Return the width that COLUMNS asks for, 0 if none."""
    given = os.environ.get("COLUMNS", "")
    return int(given) if given.isdecimal() and len(given) < 5 else 0


def _columns(stream: TextIO, terminal: bool) -> int:
    try:
        return os.get_terminal_size(stream.fileno()).columns or 80 if terminal else 80
    except (OSError, ValueError):
        return 80


def _has_boxes(stream: TextIO) -> bool:
    try:
        "│×…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def width(text: str) -> int:
    """Return how many terminal cells the text takes: two per wide character, none per combining one."""
    return len(text) if text.isascii() else sum(_cells(text))


def _cells(text: str) -> Iterator[int]:
    from unicodedata import category, east_asian_width  # noqa: PLC0415 - only for text that is not ASCII

    for char in text:
        yield 0 if category(char) in {"Mn", "Me", "Cf"} else 2 if east_asian_width(char) in "WF" else 1


def fit(text: str, cells: int, ellipsis: str = "…") -> str:
    """Return the text in at most that many cells, its end replaced by the ellipsis if it is longer."""
    if width(text) <= cells:
        return text
    kept = text[: _fitting(text, cells - len(ellipsis))]
    return (kept + ellipsis)[: max(cells, len(ellipsis))]


def clip_start(text: str, cells: int, ellipsis: str = "…") -> str:
    """Return the text in at most that many cells, its beginning replaced by the ellipsis if it is longer."""
    if width(text) <= cells:
        return text
    return ellipsis + text[len(text) - _fitting(text[::-1], cells - len(ellipsis)) :]


def _fitting(text: str, cells: int) -> int:
    """Return how many of the first characters fit into that many cells."""
    return bisect_right(list(accumulate(_cells(text))), cells)


def pad(text: str, cells: int, *, right: bool = False) -> str:
    """Return the text padded with spaces to that many cells."""
    gap = " " * (cells - width(text))
    return gap + text if right else text + gap


def table(  # noqa: PLR0913 - the columns that are special, by name
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    style: Style,
    *,
    numbers: Sequence[str] = (),
    dropped: Sequence[str] = (),
    uncut: Sequence[str] = (),
    continued: Sequence[str] = (),
    indent: int = 0,
) -> str:
    """Return rows under headers, two spaces apart, within the terminal's width: the widest column is cut first.

    Nothing is cut with `whole_tables`. Before anything is cut, the columns in `dropped` are left out, one after the other until
    the rest fits, and a column in `continued` goes on in rows of its own. Columns in `numbers` are aligned to the right. They
    are never cut, nor are those in `uncut` and the first column, which has the names: two names may differ at their end alone.
    Where that leaves no room, the lines are longer than the terminal.
    """
    body = [[visible(cell) for cell in row] for row in rows]
    widths = [max(width(row[column]) for row in [list(headers), *body]) for column in range(len(headers))]
    room = style.columns - indent - 2 * (len(headers) - 1)
    is_narrow = not style.whole_tables and sum(widths) > room
    if is_narrow and dropped:
        kept = [at for at, header in enumerate(headers) if header != dropped[0]]
        rows = [[row[at] for at in kept] for row in body]
        return table(
            [headers[at] for at in kept],
            rows,
            style,
            numbers=numbers,
            dropped=dropped[1:],
            uncut=uncut,
            continued=continued,
            indent=indent,
        )
    if is_narrow and continued:
        body, widths = _continued(body, widths, headers.index(continued[0]), room)
    right = {column for column, header in enumerate(headers) if header in numbers}
    cut = [column for column, header in enumerate(headers) if column and header not in (*numbers, *uncut)]
    while is_narrow and sum(widths) > room and cut and max(widths[at] for at in cut) > 8:
        widths[max(cut, key=lambda at: widths[at])] -= 1

    def line(cells: Sequence[str]) -> str:
        shown = (pad(fit(cell, widths[at], style.ellipsis), widths[at], right=at in right) for at, cell in enumerate(cells))
        return " " * indent + "  ".join(shown).rstrip()

    return "\n".join([style.paint(line(headers), BOLD), *map(line, body)]) + "\n"


def _continued(
    body: Sequence[Sequence[str]], widths: Sequence[int], column: int, room: int
) -> tuple[list[list[str]], list[int]]:
    """Return the rows with what is too wide in a column in further rows that have nothing else, and the widths then."""
    rows = []
    narrow = Style(columns=max(room - sum(widths) + widths[column], 12))
    for row in body:
        first, *more = wrapped(row[column], narrow).splitlines()
        rows.append([first if at == column else cell for at, cell in enumerate(row)])
        rows += [[part if at == column else "" for at in range(len(row))] for part in more]
    return rows, [narrow.columns if at == column else each for at, each in enumerate(widths)]


def wrapped(text: str, style: Style, *, indent: int = 0) -> str:
    """Return the text in lines that fit the terminal, broken at spaces; lines after the first are indented."""
    lines: list[str] = []
    for word in text.split(" "):
        if lines and width(lines[-1]) + 1 + width(word) <= style.columns:
            lines[-1] += f" {word}"
        else:
            lines.append((" " * indent if lines else "") + word)
    return "\n".join(lines) + "\n"


_LEVELS = (0, 95, 135, 175, 215, 255)
"""Of red, green and blue among colours 16 to 231 of a terminal that has 256 (ctlseqs of XTerm)."""


def channels(colour: str) -> tuple[int, int, int]:
    """Return red, green and blue, each from 0 to 255."""
    red, green, blue = bytes.fromhex(colour.removeprefix("#"))
    return red, green, blue


def nearest_of_256(colour: str) -> int:
    """Return the number of the most similar colour among the 216 of the cube of a terminal that has 256."""
    red, green, blue = (min(range(6), key=lambda at: abs(_LEVELS[at] - value)) for value in channels(colour))
    return 16 + 36 * red + 6 * green + blue
