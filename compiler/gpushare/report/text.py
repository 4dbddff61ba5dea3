"""A report as text for a terminal or a file, or as CSV."""

import csv
import io
from collections.abc import Iterator, Sequence
from typing import Any

from gpushare.core.wording import visible
from gpushare.report.model import Form, Format, Lines, Report, ReportPart, Section, Table
from gpushare.report.terminal import BOLD, DIM, Style, table, wrapped
from gpushare_node.contract.struct import replace


def render(report: Report, style: Style) -> str:
    """Return the sections that have anything to show, with an empty line between two."""
    return "\n".join(filter(None, ("".join(_parts([one], style)) for one in report.sections)))


def _parts(parts: Sequence[ReportPart], style: Style) -> Iterator[str]:
    for one in parts:
        if Format.TEXT not in one.where:
            continue
        match one:
            case Section():
                yield from _parts(one.parts, style)
            case Table() if one.rows:
                yield _table(one, style)
            case Lines() if one.lines:
                yield from _lines(one, style)
            case _:
                pass


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
        indent=one.indent,
    )
    if one.under is not None:
        head, *lines = drawn.splitlines()
        under = (style.paint(f"     {visible(text)}", DIM) if text else "" for text in map(one.under, rows))
        drawn = "".join(f"{line}\n" for pair in ((head,), *zip(lines, under, strict=True)) for line in pair if line)
    return drawn + "".join(f"{line}\n" for line in (more, one.note) if line)


def _lines(one: Lines, style: Style) -> Iterator[str]:
    if one.intro:
        yield f"{one.intro}\n"
    for number, line in enumerate(map(visible, one.lines)):
        shown = f"  {line}" if one.form is Form.LIST else line
        if one.form is Form.HEADING:
            shown = style.paint(shown, BOLD)
        elif one.lead and not number:
            shown = style.paint(visible(one.lead), BOLD) + shown
        yield f"{shown}\n" if one.indent is None else wrapped(shown, style, indent=one.indent)


def csv_text(report: Report) -> str:
    """Return the tables that are for CSV."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for one in (part for section in report.sections for part in section.parts):
        if isinstance(one, Table) and Format.CSV in one.where:
            writer.writerow([each.header for each in one.columns])
            writer.writerows([each.value(row) for each in one.columns] for row in one.rows)
    return text.getvalue()
