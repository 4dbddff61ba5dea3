"""A report as text for a terminal or a file, or as CSV."""

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpushare.core import palette
from gpushare.core.wording import visible
from gpushare.report.model import Cards, Cell, Form, Format, Lines, Map, PoolCard, Report, ReportPart, Section, Table
from gpushare.report.terminal import BOLD, CYAN, DIM, GREEN, RED, Style, pad, table, width, wrapped
from gpushare_node.contract.struct import NOTHING, Struct, replace

_WHOLE = 8
"""The number of slices of most cards: GPUs without slices are drawn as wide."""
_SHADES = palette.DARK
_LONG = 40
"""Lines of the sections that are followed by the summary alone: with more, it precedes them, too."""


class _Strokes(Struct):
    """Characters of a frame (corners and crossings of top and bottom, two lines), of replicas' dividers, of unused slices."""

    top: str
    bottom: str
    across: str
    down: str
    divider: str
    unused: str
    signs: Mapping[str, str] = NOTHING

    def written(self, label: str) -> str:
        """Return the label in characters that the terminal has."""
        for sign, text in self.signs.items():
            label = label.replace(sign, text)
        return label


_BOXES = _Strokes(top="┌┬┐", bottom="└┴┘", across="─", down="│", divider="┊", unused="░")
_ASCII = _Strokes(top="+++", bottom="+++", across="-", down="|", divider=":", unused=".", signs={"×": "x", "≤": "<="})


def render(report: Report, style: Style) -> str:
    """Return the head, and the sections that have anything to show, with an empty line between two."""
    sections = ["".join(_parts([one], style)) for one in report.sections]
    ends = [wrapped(_shown(report.summary, style), style)] if report.summary else []
    begins = ends if sum(one.count("\n") + 1 for one in sections if one) > _LONG else []
    return "\n".join(filter(None, ("".join(_parts(report.head, style)), *begins, *sections, *ends)))


def _parts(parts: Sequence[ReportPart], style: Style, left: int = 0) -> Iterator[str]:
    """Yield the parts, indented by `left`."""
    for one in parts:
        if Format.TEXT not in one.where:
            continue
        match one:
            case Section():
                inner = "".join(_parts(one.parts, style, left))
                yield (style.paint(one.title.upper(), BOLD) + "\n" if inner and one.is_titled else "") + inner
            case Table() if one.rows:
                yield _table(one, style)
            case Lines() if one.lines:
                yield from _lines(one, style, left)
            case Map():
                yield _map(one, style)
            case Cards():
                yield "\n".join("".join(_card(card, style)) for card in one.shown(Format.TEXT))
            case _:
                pass


def _card(card: PoolCard, style: Style) -> Iterator[str]:
    colour = RED if card.is_harmful else GREEN if card.mark == "+" else CYAN
    said = ", ".join(filter(None, (card.tag, card.aside)))
    yield style.paint(f"{card.mark} {_shown(card.name, style)}", BOLD, colour)
    yield f"  {'each ' if card.alike else ''}{_shown(said, style)}\n"
    yield from _parts(card.parts, style, 2)


def _table(one: Table[Any], style: Style) -> str:
    columns = [each for each in one.columns if Format.TEXT in each.where and (one.is_wide or not each.is_wide)]
    left = 0 if one.most is None else len(one.rows) - one.most
    more = one.more or (f"and {left} more" if left > 0 else "")
    rows = one.rows[: one.most]
    drawn = table(
        [each.header for each in columns],
        [[_shown(each.value(row), style) for each in columns] for row in rows],
        replace(style, whole_tables=True) if one.is_wide else style,
        numbers=[each.header for each in columns if each.is_number],
        dropped=[each.header for each in columns if each.is_droppable],
        uncut=[each.header for each in columns if each.is_uncut],
        continued=[each.header for each in columns if each.is_continued],
        indent=one.indent,
    )
    if one.under is not None:
        head, *lines = drawn.splitlines()
        under = (style.paint(f"     {_shown(text, style)}", DIM) if text else "" for text in map(one.under, rows))
        drawn = "".join(f"{line}\n" for pair in ((head,), *zip(lines, under, strict=True)) for line in pair if line)
    return drawn + "".join(f"{line}\n" for line in (more, one.note) if line)


def _lines(one: Lines, style: Style, left: int) -> Iterator[str]:
    lines, more = one.cut(one.most)
    if one.intro:
        yield f"{one.intro}\n"
    blank = " " * (left + 2 if one.form in {Form.LIST, Form.ORDER, Form.FOLDED} else left)
    for number, line in enumerate(lines):
        shown = _shown(f"{number + 1}. {line}" if one.form is Form.ORDER else line, style)
        if one.form is Form.HEADING:
            shown = style.paint(shown, BOLD)
        elif one.lead and not number:
            shown = style.paint(_shown(one.lead, style), BOLD) + shown
        if one.indent is None:
            yield f"{blank}{shown}\n"
        else:
            yield wrapped(blank + shown, style, indent=left + one.indent + len(shown) - len(shown.lstrip(" ")))
    yield f"{blank}{more}\n" if more else ""


def _shown(text: str, style: Style) -> str:
    """Return the text without what would control the terminal, or what it lacks."""
    return visible(text) if style.boxes else visible(text).replace("→", "->")


def _map(one: Map, style: Style) -> str:
    title, aside = _shown(one.title, style), _shown(one.aside, style)
    head = "  ".join(filter(None, (" " * one.indent + title, aside)))
    shown = wrapped(head, style, indent=one.indent + 2).replace(aside, style.paint(aside, DIM)) if title else ""
    return shown + (bar(one, style) if one.cells else "")


def bar(one: Map, style: Style) -> str:
    """Return the cells to scale over all slices, unused ranges filled; without a frame only what is inside it."""
    strokes = _BOXES if style.boxes else _ASCII
    wide = 1 if one.slices else max(_WHOLE // len(one.cells), 1)
    units = one.slices or wide * len(one.cells)
    # A unit and its border; bars are never wider than 100.
    per_unit = wide * max(2, (min(style.columns, 100) - one.indent - 1) // units)
    placed = one.filled()
    rooms = [cell.size * per_unit - 1 for cell in placed]
    columns = [_column(cell, room, strokes) for cell, room in zip(placed, rooms, strict=True)]
    height = max(map(len, columns))
    blanks = [" " if cell.labels else strokes.unused for cell in placed]
    shown = [
        [_painted(line, cell, style) for line in column + [blank * room] * (height - len(column))]
        for cell, room, column, blank in zip(placed, rooms, columns, blanks, strict=True)
    ]
    lines = [strokes.down + strokes.down.join(row) + strokes.down for row in zip(*shown, strict=True)]
    if one.is_framed:
        lines = [_edge(rooms, strokes.top, strokes.across), *lines, _edge(rooms, strokes.bottom, strokes.across)]
    return "".join(f"{' ' * one.indent}{line}\n" for line in lines)


def _edge(rooms: Sequence[int], corners: str, across: str) -> str:
    left, cross, right = tuple(corners)
    return left + cross.join(across * room for room in rooms) + right


def _column(cell: Cell, room: int, strokes: _Strokes) -> list[str]:
    """Return the cell's lines, each as wide as the cell; a label that is too long continues in the next line."""
    if not cell.labels:
        return [strokes.unused * room]
    pieces = [piece for label in cell.labels for piece in _pieces(strokes.written(label), room)]
    lines = [pad(" " * ((room - width(piece)) // 2) + piece, room) for piece in pieces]
    return [*lines, *_divided(cell.segments, room, strokes.divider)]


def _divided(parts: int, room: int, divider: str) -> list[str]:
    """Return the line that divides the cell into equal segments; none if there is one, or not a character for each."""
    if parts == 1 or room < 2 * parts - 1:
        return []
    line = [" "] * room
    for part in range(1, parts):
        line[part * (room + 1) // parts - 1] = divider
    return ["".join(line)]


def _painted(line: str, cell: Cell, style: Style) -> str:
    """Return a line of the cell in the colour of its profile, as far as the terminal has that."""
    if not cell.labels:
        return style.paint(line, DIM)
    colour = _SHADES.of(cell.profile)
    return style.paint(line, *style.shade(_SHADES.ink, ground=colour))


def _pieces(label: str, room: int) -> list[str]:
    """Return the label in pieces of at most `room` characters, broken before `+`, `×` or a space if possible."""
    if len(label) <= room:
        return [label]
    for mark in ("+", "×", " "):
        head, found, tail = label.partition(mark)
        if found and head and len(head) <= room:
            return [head, *_pieces((found + tail).strip(), room)]
    return [label[:room], *_pieces(label[room:], room)]


def csv_text(report: Report) -> str:
    """Return the tables that are for CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for one in (part for section in report.sections for part in section.parts):
        if isinstance(one, Table) and Format.CSV in one.where:
            columns = [each for each in one.columns if Format.CSV in each.where]
            writer.writerow([each.header for each in columns])
            writer.writerows([each.value(row) for each in columns] for row in one.rows)
    return text.getvalue()
