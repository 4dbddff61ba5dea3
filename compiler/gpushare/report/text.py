"""A report as text for a terminal or a file, or as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from gpushare.core.wording import visible
from gpushare.report import memory_map
from gpushare.report.model import Cards, Form, Format, Lines, Map, PoolCard, Report, ReportPart, Section, Table
from gpushare.report.terminal import BOLD, CYAN, DIM, GREEN, RED, Style, table, wrapped
from gpushare_node.contract.struct import replace

_LONG = 40
"""Lines of the sections that are followed by the summary alone: with more, it precedes them, too."""


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
        [[each.value(row) for each in columns] for row in rows],
        replace(style, whole_tables=True) if one.is_wide else style,
        numbers=[each.header for each in columns if each.is_number],
        dropped=[each.header for each in columns if each.is_droppable],
        uncut=[each.header for each in columns if each.is_uncut],
        continued=[each.header for each in columns if each.is_continued],
        indent=one.indent,
    )
    if one.under is not None:
        head, *lines = drawn.splitlines()
        under = (style.paint(f"     {visible(text)}", DIM) if text else "" for text in map(one.under, rows))
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
            shown = style.paint(visible(one.lead), BOLD) + shown
        if one.indent is None:
            yield f"{blank}{shown}\n"
        else:
            yield wrapped(blank + shown, style, indent=left + one.indent + len(shown) - len(shown.lstrip(" ")))
    yield f"{blank}{more}\n" if more else ""


def _shown(text: str, style: Style) -> str:
    """Return the text without what would control the terminal, or what it lacks."""
    return visible(text) if style.boxes else visible(text).replace("→", "->")


def _map(one: Map, style: Style) -> str:
    title, aside = visible(one.title), visible(one.aside)
    head = "  ".join(filter(None, (" " * one.indent + title, aside)))
    shown = wrapped(head, style, indent=one.indent + 2).replace(aside, style.paint(aside, DIM)) if title else ""
    return shown + (memory_map.bar(one, style) if one.cells else "")


def csv_text(report: Report) -> str:
    """Return the tables that are for CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for one in (part for section in report.sections for part in section.parts):
        if isinstance(one, Table) and Format.CSV in one.where:
            writer.writerow([each.header for each in one.columns])
            writer.writerows([each.value(row) for each in one.columns] for row in one.rows)
    return text.getvalue()
