"""Report: what a command has to say, once, for text, HTML, Markdown and CSV; a writer for each is beside this module. Pure.

A command has one module here, which makes its Report and, with `document`, its JSON. All texts may be of an input: the writers
make them safe to print.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Flag, StrEnum, auto
from typing import Any, Generic, TypeVar

from gpushare_node.contract.struct import NOTHING, Struct

T = TypeVar("T")


class Format(Flag):
    """The formats that show a part of a report, or a column."""

    TEXT = auto()
    PAGE = auto()
    MARKDOWN = auto()
    CSV = auto()
    ANY = TEXT | PAGE | MARKDOWN


class Column(Generic[T], Struct):
    """A column of rows of `T`: an entry is all that a column needs.

    `header` is that of the text; the page writes it in small letters, unless it has its own: texts of ours, never of an input.
    `is_number`: aligned to the right. `is_droppable`: left out of a narrow terminal, before others are cut; `is_uncut`: never
    cut. `is_wide`: in the text only where the table is wide. `is_code`: names that people copy. `meter`: what is used, of how
    much; the page draws it beside the value.
    """

    header: str
    value: Callable[[T], str]
    page_header: str = ""
    where: Format = Format.ANY
    is_number: bool = False
    is_droppable: bool = False
    is_uncut: bool = False
    is_wide: bool = False
    is_code: bool = False
    meter: Callable[[T], tuple[int, int]] | None = None


class ReportPart(Struct):
    """A part of a report. `kind` is the macro of the page's template that draws it."""

    where: Format = Format.ANY
    kind = ""


class Table(Generic[T], ReportPart):
    """A table, which is left out without rows. The page leaves out columns in which no row has anything, except the first.

    `most`: rows of the text, and `most_on_page` of the page, None for all; `more` says what is left out in place of how many.
    `under` is a line under a row of the text, if it is not empty; `note` follows the table. `is_wide`: with all columns,
    however wide the terminal is. `is_fixed`: the page shows all columns, aligned with those of other cards, also without rows.
    `indent`: spaces before the lines of the text.
    """

    kind = "table"
    columns: Sequence[Column[T]]
    rows: Sequence[T]
    title: str = ""
    most: int | None = None
    most_on_page: int | None = None
    more: str = ""
    under: Callable[[T], str] | None = None
    note: str = ""
    is_wide: bool = False
    is_fixed: bool = False
    indent: int = 0


class Form(StrEnum):
    """What lines are on the page; in the text those of a list are indented.

    HEADING: in bold. NOTE: a box. MUTED: an explanation. FOLDED: lines that are opened and copied together.
    CODE: lines of a file.
    """

    PLAIN = "plain"
    HEADING = "heading"
    NOTE = "note"
    MUTED = "muted"
    LIST = "list"
    ORDER = "order"
    FOLDED = "folded"
    CODE = "code"


class Lines(ReportPart):
    """Lines, left out if there are none. `intro` stands before them, `lead` in bold directly before the first.

    `indent`: the text breaks them at its width, and indents what follows by so much; None: it does not.
    """

    kind = "lines"
    lines: Sequence[str]
    form: Form = Form.PLAIN
    intro: str = ""
    lead: str = ""
    indent: int | None = None


class Drawing(ReportPart):
    """A drawing of curves on the page: `paths` are classes of the style and SVG paths in the box of curves.py.

    `title` is what it shows in words, `legend` the classes and words of its colours; `top` is what its height is, `ticks` are
    what is below it, from the left to the right.
    """

    kind = "drawing"
    where: Format = Format.PAGE
    title: str
    paths: Sequence[tuple[str, str]]
    ticks: Sequence[str]
    legend: Sequence[tuple[str, str]] = ()
    top: str = ""


class Legend(ReportPart):
    """What the colours of drawings mean: classes of the style and words."""

    kind = "legend"
    where: Format = Format.PAGE
    entries: Sequence[tuple[str, str]]


class PoolCard(ReportPart):
    """A pool on the page, folded if there are many: who it is, and the parts about it.

    `modes` are those of `pools.mode`, before and after. `text` is what a search finds it by.
    """

    kind = "card"
    id: str
    name: str
    parts: Sequence[ReportPart]
    tag: str = ""
    is_harmful: bool = False
    modes: Sequence[Mapping[str, str]] = ()
    fact: str = ""
    aside: str = ""
    text: str = ""


class Cards(ReportPart):
    """The pools of a page, with a search by `search`, and what their colours mean."""

    kind = "cards"
    where: Format = Format.PAGE
    cards: Sequence[PoolCard]
    search: str
    legend: Sequence[Mapping[str, str]] = ()
    explained: str = ""
    note: str = ""


class Section(ReportPart):
    """Parts under a title, left out without any. The text parts sections by an empty line, and shows no title.

    Without a title it is the parts alone.
    """

    kind = "section"
    id: str = ""
    title: str = ""
    parts: Sequence[ReportPart]


class Sides(ReportPart):
    """Parts side by side on the page, each side under its title if it has one."""

    kind = "sides"
    where: Format = Format.PAGE
    sides: Sequence[Section]


def bare(*parts: ReportPart) -> Section:
    """Return parts without a title."""
    return Section(parts=parts)


class Report(Struct):
    """All that a command says. `document` makes its JSON.

    Of the page: `tab` is the browser's title, `title` if empty; `facts` are groups of names and values; `as_of` says when, with
    `{}` for the time; `head` follows it; `footer` is after all.
    """

    title: str = ""
    tab: str = ""
    verdict: str = ""
    facts: Sequence[Mapping[str, str]] = ()
    as_of: str = "As of {}."
    head: Sequence[ReportPart] = ()
    sections: Sequence[Section] = ()
    footer: str = ""
    document: Callable[[], Mapping[str, Any]] = lambda: NOTHING
