"""Tables of the pages for a browser: rows, and rules of the style that align them and name each value on a narrow screen."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from gpushare.core.wording import visible
from gpushare.report.model import Format, ReportPart, Table


class HtmlTable(ReportPart):
    """A table as the template reads it. `numbers` and `codes` are the columns that have numbers, and names that people copy.

    `headers` are texts of ours, never of an input: they are part of the style. `more` says what is left out.

    `meters` are of each row what is used of how much, drawn in the column `meter_at`.
    """

    kind = "table"
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    id: str = ""
    numbers: tuple[int, ...] = ()
    codes: tuple[int, ...] = ()
    more: str = ""
    note: str = ""
    is_fixed: bool = False
    meters: tuple[tuple[int, int], ...] = ()
    meter_at: int | None = None

    @property
    def style(self) -> str:
        """The class of all tables with the same columns."""
        return "t" + hashlib.sha256(repr((self.headers, self.numbers, self.codes)).encode()).hexdigest()[:6]

    def rules(self) -> str:
        """Return the rules of the style: no cell needs a class of its own, which would be most of a large page."""
        return "".join(self._rules())

    def _rules(self) -> Iterable[str]:
        for number in self.numbers:
            yield f".{self.style} tr > :nth-child({number + 1}) {{ text-align: right; font-variant-numeric: tabular-nums; }}\n"
        for code in self.codes:
            yield f".{self.style} tbody tr > :nth-child({code + 1}) {{ font-family: var(--mono); font-size: .875rem; }}\n"
        named = "".join(
            f' .{self.style} td:nth-child({number})::before {{ content: "{header}"; }}'
            for number, header in enumerate(self.headers[1:], 2)
        )
        yield f"@media screen and (max-width: 40rem) {{{named} }}\n"


def table(  # noqa: PLR0913 - the fields of a table
    title: str,
    headers: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    id: str = "",  # noqa: A002 - as the attribute in HTML
    numbers: Sequence[int] = (),
    codes: Sequence[int] = (),
    most: int | None = None,
    more: str = "",
) -> HtmlTable:
    """Return a table without the columns in which no row has anything, the first aside; at most `most` rows."""
    shown = [tuple(map(visible, row)) for row in rows]
    left = 0 if most is None else len(shown) - most
    kept = [at for at in range(len(headers)) if at == 0 or any(row[at] not in {"", "-"} for row in shown)]
    return HtmlTable(
        id=id,
        title=title,
        headers=tuple(headers[at] for at in kept),
        rows=tuple(tuple(row[at] for at in kept) for row in shown[:most]),
        numbers=tuple(kept.index(at) for at in numbers if at in kept),
        codes=tuple(kept.index(at) for at in codes if at in kept),
        more=more or (f"and {left} more; --format json has them" if left > 0 else ""),
    )


def grid(one: Table[Any]) -> HtmlTable:
    """Return a table of a report as the page shows it."""
    columns = [each for each in one.columns if Format.PAGE in each.where]
    shown = [tuple(each.value(row) for each in columns) for row in one.rows[: one.most_on_page]]
    left = 0 if one.most_on_page is None else len(one.rows) - one.most_on_page
    kept = [
        each for at, each in enumerate(columns) if one.is_fixed or at == 0 or any(row[at] not in {"", "-"} for row in shown)
    ]
    meter = next((each.meter for each in kept if each.meter), None)
    return HtmlTable(
        title=one.title,
        headers=tuple(each.page_header or each.header.capitalize() for each in kept),
        rows=tuple(tuple(row[columns.index(each)] for each in kept) for row in shown),
        numbers=tuple(at for at, each in enumerate(kept) if each.is_number),
        codes=tuple(at for at, each in enumerate(kept) if each.is_code),
        more=one.more or (f"and {left} more; --format json has them" if left > 0 else ""),
        note=one.note,
        is_fixed=one.is_fixed,
        meters=tuple(map(meter, one.rows)) if meter else (),
        meter_at=next((at for at, each in enumerate(kept) if each.meter), None),
    )
