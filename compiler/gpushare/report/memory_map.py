"""Bars of memory slices: the instances of a GPU and its free slices, to scale. Draws text, decides nothing."""

from collections.abc import Iterable, Mapping, Sequence

from gpushare.core import palette
from gpushare.report.model import Cell, Map
from gpushare.report.terminal import DIM, Style, pad, width
from gpushare_node.contract.struct import NOTHING, Struct

_MAX_SEGMENTS = 8
"""With more replicas than these, their number alone says how many."""
_WHOLE = 8
"""The number of slices of most cards: GPUs without slices are drawn as wide."""
_SHADES = palette.DARK


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


def gaps(taken: Iterable[tuple[int, int]], units: int) -> tuple[tuple[int, int], ...]:
    """Return the (start, size) ranges of 0…units that no (start, size) of `taken` covers, in order."""
    found, at = [], 0
    for start, size in sorted(taken):
        if start > at:
            found.append((at, start - at))
        at = max(at, start + size)
    if at < units:
        found.append((at, units - at))
    return tuple(found)


def segments(replicas: int) -> int:
    """Return into how many segments a device with so many replicas is divided."""
    return replicas if replicas <= _MAX_SEGMENTS else 1


def bar(one: Map, style: Style) -> str:
    """Return the cells to scale over all slices, unused ranges filled; without a frame only what is inside it."""
    strokes = _BOXES if style.boxes else _ASCII
    wide = 1 if one.slices else max(_WHOLE // len(one.cells), 1)
    units = one.slices or wide * len(one.cells)
    # A unit and its border; bars are never wider than 100.
    per_unit = wide * max(2, (min(style.columns, 100) - one.indent - 1) // units)
    placed = filled(one)
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


def filled(one: Map) -> list[Cell]:
    """Return the cells and the slices that are not used, in order."""
    taken = [(cell.start, cell.size) for cell in one.cells]
    unused = [] if one.slices is None else [Cell(start=start, size=size) for start, size in gaps(taken, one.slices)]
    return sorted([*one.cells, *unused], key=lambda cell: cell.start)


def _edge(rooms: Sequence[int], corners: str, across: str) -> str:
    left, cross, right = tuple(corners)
    return left + cross.join(across * room for room in rooms) + right


def _column(cell: Cell, room: int, strokes: _Strokes) -> list[str]:
    """Return the cell's lines, each as wide as the cell; a label that is too long continues in the next line."""
    if not cell.labels:
        return [strokes.unused * room]
    pieces = [piece for label in cell.labels for piece in _wrapped(strokes.written(label), room)]
    lines = [pad(" " * ((room - width(piece)) // 2) + piece, room) for piece in pieces]
    return [*lines, *_divided(segments(cell.replicas), room, strokes.divider)]


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


def _wrapped(label: str, room: int) -> list[str]:
    """Return the label in pieces of at most `room` characters, broken before `+`, `×` or a space if possible."""
    if len(label) <= room:
        return [label]
    for mark in ("+", "×", " "):
        head, found, tail = label.partition(mark)
        if found and head and len(head) <= room:
            return [head, *_wrapped((found + tail).strip(), room)]
    return [label[:room], *_wrapped(label[room:], room)]
