"""A report as one HTML page that needs no network: escaped text, one style, one script, tables that fit a narrow screen.

The page's Content-Security-Policy permits the one style and the one script that it has, by their digests, so no text can add
another. It also forbids `style` attributes: what depends on the page, such as the headings of a table, is a rule of its style.
"""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup, escape

from gpushare import __version__
from gpushare.core import palette, resources
from gpushare.core.palette import Shades
from gpushare.core.wording import visible
from gpushare.report import html_table
from gpushare.report.html_table import HtmlTable
from gpushare.report.model import Cards, Form, Format, Lines, Report, ReportPart, Section, Sides, Table
from gpushare_node.contract.struct import replace

MAX_UNFOLDED = 12
"""With more pools than these, all are folded at first."""
_MAX_CELL = 32
"""Slices: the style has a rule for each length."""


def page(report: Report, when: str) -> str:
    """Return the page of a report. `when` is the time of what it says."""
    tables: list[HtmlTable] = []
    head, sections = (list(_shown(parts, tables)) for parts in (report.head, report.sections))
    return render(
        "report.html.j2", tables=tables, report=report, when=when, head=head, sections=sections, most_unfolded=MAX_UNFOLDED
    )


def _shown(parts: Iterable[ReportPart], tables: list[HtmlTable]) -> Iterator[ReportPart]:
    """Yield the parts that the page has, with tables as the template reads them, which are added to `tables`."""
    for one in parts:
        if Format.PAGE not in one.where:
            continue
        match one:
            case Table():
                grid = html_table.grid(one)
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


def render(template: str, *, tables: Iterable[HtmlTable] = (), **values: Any) -> str:
    """Return the page of this template. `tables` are all those that it shows: the style has rules for each kind."""
    rules = "".join(dict.fromkeys(table.rules() for table in tables))
    sizes = "".join(f".w{size} {{ --w: {size}; }}\n" for size in range(2, _MAX_CELL + 1))
    # From our own files and constants, the only text that is not escaped.
    style = Markup(_colours() + _file("page.css") + sizes + rules)  # noqa: S704
    script = Markup(_file("page.js"))  # noqa: S704
    return (
        _environment()
        .get_template(template)
        .render(
            style=style, style_hash=_digest(style), script=script, script_hash=_digest(script), version=__version__, **values
        )
    )


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
    environment.filters |= {"prose": _prose, "verbatim": lambda text: Markup(escape(text))}  # noqa: S704 - escaped
    return environment


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
