"""A report as one HTML page that needs no network: escaped text, one style, one script, tables that fit a narrow screen.

The page's Content-Security-Policy permits the one style and the one script that it has, by their digests, so no text can add
another. It also forbids `style` attributes: what depends on the page, such as the headings of a table, is a rule of its style.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from gpushare import __version__
from gpushare.core import palette, resources
from gpushare.core.palette import Shades
from gpushare.core.wording import visible
from gpushare.report.model import Cards, Form, Format, Lines, Map, PoolCard, Report, ReportPart, Section, Sides, Table
from gpushare_node.contract.struct import replace

MAX_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
MAX_SNIPPETS = 100
"""With more cards than these the page has each text of a snippet once, into which its script writes the names."""
_MAX_CELL = 32
"""Slices: the style has a rule for each length."""


class HtmlTable(ReportPart):
    """A table as the template reads it. `numbers` and `codes` are the columns that have numbers, and names that people copy.

    `headers` are texts of ours, never of an input: they are part of the style. `more` says what is left out.

    `meters` are of each row what is used of how much, drawn in the column `meter_at`.
    """

    kind = "table"
    title: str
    headers: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
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


def page(report: Report, when: str) -> str:
    """Return the page of a report. `when` is the time of what it says."""
    tables: list[HtmlTable] = []
    head, sections = (list(_shown(parts, tables)) for parts in (report.head, report.sections))
    rules = "".join(dict.fromkeys(table.rules() for table in tables))
    sizes = "".join(f".w{size} {{ --w: {size}; }}\n" for size in range(2, _MAX_CELL + 1))
    # From our own files and constants, the only text that is not escaped.
    style = Markup(_colours() + _file("page.css") + sizes + rules)  # noqa: S704
    script = Markup(_file("page.js"))  # noqa: S704
    return (
        _environment()
        .get_template("report.html.j2")
        .render(
            style=style,
            style_hash=_digest(style),
            script=script,
            script_hash=_digest(script),
            version=__version__,
            report=report,
            when=when,
            head=head,
            sections=sections,
            most_unfolded=MAX_UNFOLDED,
        )
    )


def _shown(parts: Iterable[ReportPart], tables: list[HtmlTable]) -> Iterator[ReportPart]:
    """Yield the parts that the page has, with tables as the template reads them, which are added to `tables`."""
    for one in parts:
        if Format.PAGE not in one.where:
            continue
        match one:
            case Table():
                grid = _table(one)
                if grid.rows or one.is_fixed:
                    tables.append(grid)
                    yield grid
            case Section():
                if inner := list(_shown(one.parts, tables)):
                    yield replace(one, parts=inner)
            case Cards():
                cards = one.shown(Format.PAGE)
                yield replace(one, cards=[replace(card, parts=list(_shown(card.parts, tables))) for card in cards])
            case Sides():
                yield replace(one, sides=[replace(side, parts=list(_shown(side.parts, tables))) for side in one.sides])
            case Lines():
                if one.lines:
                    lines, more = one.cut(one.most_on_page)
                    yield replace(one, lines=lines)
                    if more:
                        yield Lines(lines=[more], form=Form.MUTED)
            case _:
                yield one


@cache
def _environment() -> jinja2.Environment:
    """Return what compiles the templates, and keeps them."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.templates()),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: visible(value) if type(value) is str else value,  # markup has been made safe already
    )
    environment.filters |= {
        "prose": _prose,
        "verbatim": lambda text: Markup(escape(text)),  # noqa: S704 - escaped
        "cells": _cells,
        "shared": _shared,
    }
    return environment


def _table(one: Table[Any]) -> HtmlTable:
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


def _cells(one: Map) -> list[Mapping[str, Any]]:
    """Return the cells of a map as the template reads them: the class of the colour, and into how many shares it is divided."""
    return [
        {
            "colour": palette.css_class(palette.kind(cell.profile)) if cell.labels else "unused",
            "size": cell.size,
            "lines": cell.labels or ("unused",),
            "mark": cell.mark,
            "shares": cell.segments,
        }
        for cell in one.filled()
    ]


def _shared(cards: Sequence[PoolCard]) -> dict[str, int]:
    """Return the texts of snippets that the page has once, with their numbers; none if each card has its own."""
    texts = dict.fromkeys(card.snippet.text for card in cards if card.snippet is not None)
    return {text: number for number, text in enumerate(texts)} if len(cards) > MAX_SNIPPETS else {}


def _file(name: str) -> str:
    return (resources.templates() / name).read_text(encoding="utf-8")


def _prose(text: str) -> Markup:
    """Return a text of sentences with `commands` between backquotes as elements."""
    return Markup(re.sub("`([^`\n]+)`", r"<code>\1</code>", str(escape(visible(text)))))  # noqa: S704 - escaped before


def _digest(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _colours() -> str:
    """Return the rules of the palette."""
    classes = "".join(
        f".{palette.css_class(kind)} {{ background: var(--{palette.css_class(kind)}); }}\n" for kind in palette.LIGHT.colours
    )
    classes += "".join(f".m-{mode} {{ --mode: var(--m-{mode}); }}\n" for mode in palette.LIGHT.modes)
    dark = f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {_variables(palette.DARK)} }} }}\n"
    return f":root {{ {_variables(palette.LIGHT)} }}\n{dark}{classes}"


def _variables(shades: Shades) -> str:
    named = {palette.css_class(kind): colour for kind, colour in shades.colours.items()}
    named |= {f"m-{mode}": colour for mode, colour in shades.modes.items()}
    return f"--ink: {shades.ink}; " + " ".join(f"--{name}: {colour};" for name, colour in named.items())
