"""Report: what a command has to say, once, for text, HTML, Markdown and CSV; a writer for each is beside this module. Pure.

A command has one module here, which makes its Report and, with `document`, its JSON. All texts may be of an input: the writers
make them safe to print.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Flag, StrEnum, auto
from typing import Any, Generic, TypeVar

from gpushare.core.wording import join_first
from gpushare_node.contract.struct import NOTHING, Struct, replace

T = TypeVar("T")

POOL, RESOURCE = "⟨pool⟩", "⟨resource⟩"
"""Where names are written into a text: characters that no name has."""
_MAX_SEGMENTS = 8


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
    cut; `is_continued`: goes on in rows of its own. `is_wide`: in the text only where the table is wide. `is_code`: names that
    people copy. `meter`: what is used, of how much; the page draws it beside the value.
    """

    header: str
    value: Callable[[T], str]
    page_header: str = ""
    where: Format = Format.ANY
    is_number: bool = False
    is_droppable: bool = False
    is_uncut: bool = False
    is_continued: bool = False
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

    `indent`: the text breaks them at its width, and indents what follows by so much more than the line; None: it does not.
    `most`: lines of the text, and `most_on_page` of the page and of Markdown, None for all. `title` says what folded lines are.
    """

    kind = "lines"
    lines: Sequence[str]
    form: Form = Form.PLAIN
    intro: str = ""
    lead: str = ""
    title: str = ""
    indent: int | None = None
    most: int | None = None
    most_on_page: int | None = None

    def cut(self, most: int | None) -> tuple[Sequence[str], str]:
        """Return the first lines, at most so many, and what says how many are left out."""
        left = 0 if most is None else len(self.lines) - most
        return self.lines[:most], f"and {left} more; --format json has them" if left > 0 else ""


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


class Cell(Struct):
    """A range of a GPU's memory slices: `labels` are its lines, `profile` has its colour, `replicas` divide it.

    Without labels it is not used. `mark` says in a word what happens to it.
    """

    start: int
    size: int
    labels: tuple[str, ...] = ()
    profile: str | None = None
    replicas: int = 1
    mark: str = ""

    @property
    def segments(self) -> int:
        """Into how many segments its replicas divide it: 1 if there are so many that their number alone says it."""
        return self.replicas if self.replicas <= _MAX_SEGMENTS else 1


class Map(ReportPart):
    """The memory of a GPU, or of several that are alike, to scale.

    `slices`: how many the GPU has, None if its cells share all of it. `aside` follows the title. The text draws nothing
    without cells; `indent` and `is_framed` are the text's. `mode` is the kind of `pool_facts.mode`, if it is not the card's.
    """

    kind = "map"
    cells: Sequence[Cell]
    slices: int | None
    title: str = ""
    aside: str = ""
    mode: str = ""
    indent: int = 2
    is_framed: bool = True

    def filled(self) -> list[Cell]:
        """Return the cells and the slices that are not used, in order."""
        taken = [(cell.start, cell.size) for cell in self.cells]
        unused = [] if self.slices is None else [Cell(start=start, size=size) for start, size in gaps(taken, self.slices)]
        return sorted([*self.cells, *unused], key=lambda cell: cell.start)


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


class Warnings(ReportPart):
    """Findings on the page: code, message, and what to do."""

    kind = "warnings"
    where: Format = Format.PAGE
    entries: Sequence[tuple[str, str, Sequence[str]]]


class Legend(ReportPart):
    """What the colours of drawings mean: classes of the style and words."""

    kind = "legend"
    where: Format = Format.PAGE
    entries: Sequence[tuple[str, str]]


class Snippet(Struct):
    """A text to copy, folded at the end of a card; `what` it is, and `notes` that follow it.

    It has POOL and RESOURCE in place of the name of the card's first pool and of `resource`: a page of many cards has each such
    text once, and its script writes the names.
    """

    title: str
    what: str
    text: str
    resource: str
    notes: Sequence[str] = ()

    def of(self, pool: str) -> str:
        """Return the text for this pool."""
        return self.text.replace(POOL, pool).replace(RESOURCE, self.resource)


class PoolCard(ReportPart):
    """A pool, on the page folded if there are many: who it is, and the parts about it.

    `mark` is a sign before its name in the text, `tag` what is so of it in a word, `nodes` which nodes it has. `modes` are
    those of `pool_facts.mode`, before and after. `text` is what a search finds it by. `alike` are the pools for which the card
    stands.
    """

    kind = "card"
    id: str
    name: str
    parts: Sequence[ReportPart]
    mark: str = ""
    tag: str = ""
    is_harmful: bool = False
    nodes: str = ""
    modes: Sequence[Mapping[str, str]] = ()
    fact: str = ""
    aside: str = ""
    text: str = ""
    snippet: Snippet | None = None
    alike: Sequence["PoolCard"] = ()


class Cards(ReportPart):
    """The pools, on the page with a search by `search`, and what their colours mean.

    `is_folded`: those of which a format says the same are one card.
    """

    kind = "cards"
    where: Format = Format.PAGE
    cards: Sequence[PoolCard]
    search: str
    legend: Sequence[Mapping[str, str]] = ()
    explained: str = ""
    note: str = ""
    is_folded: bool = False

    def shown(self, where: Format) -> Sequence[PoolCard]:
        """Return the cards as this format has them, each with its parts alone."""
        cards = [replace(card, parts=[one for one in card.parts if where in one.where]) for card in self.cards]
        return _folded(cards, where) if self.is_folded else cards


def _folded(cards: Sequence[PoolCard], where: Format) -> Sequence[PoolCard]:
    groups: dict[str, list[PoolCard]] = {}
    for card in cards:
        said = replace(card, id="", name="", nodes="", text="", modes=card.modes if where is Format.PAGE else ())
        groups.setdefault(repr(said), []).append(card)
    return [each[0] if len(each) == 1 else _of_all(each) for each in groups.values()]


def _of_all(cards: Sequence[PoolCard]) -> PoolCard:
    """Return the card that stands for these."""
    fact = cards[0].fact and f"{cards[0].fact} in each"
    name = join_first([card.name for card in cards], MAX_NAMED)
    return replace(cards[0], id=f"pools-{cards[0].name}", name=name, nodes="", fact=fact, alike=cards)


MAX_NAMED = 3
"""Pools that the name of a card for several has."""


class Section(ReportPart):
    """Parts under a title, left out without any. The text parts sections by an empty line.

    Without a title it is the parts alone. `is_titled`: the text, too, has the title.
    """

    kind = "section"
    id: str = ""
    title: str = ""
    is_titled: bool = False
    parts: Sequence[ReportPart]


class Sides(ReportPart):
    """Parts side by side on the page, each side under its title if it has one.

    `title`: they are one figure, whose sides stay beside each other on a narrow screen.
    """

    kind = "sides"
    where: Format = Format.PAGE
    sides: Sequence[Section]
    title: str = ""


def bare(*parts: ReportPart) -> Section:
    """Return parts without a title."""
    return Section(parts=parts)


class Report(Struct):
    """All that a command says: `head`, then the sections. `document` makes its JSON.

    `summary` is one line, with which Markdown begins and the text ends; a long text has it after the head, too.
    Of the page: `tab` is the browser's title, `title` if empty; `facts` are groups of names and values; `as_of` says when, with
    `{}` for the time; `footer` is after all.
    """

    title: str = ""
    tab: str = ""
    verdict: str = ""
    summary: str = ""
    facts: Sequence[Mapping[str, str]] = ()
    as_of: str = "As of {}."
    head: Sequence[ReportPart] = ()
    sections: Sequence[Section] = ()
    footer: str = ""
    document: Callable[[], Mapping[str, Any]] = lambda: NOTHING
