"""A report as Markdown, for a comment on a merge request: nothing in a text is read as markup."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpushare.core.wording import pluralize, visible
from gpushare.report.model import MAX_NAMED, Cards, Form, Format, Lines, PoolCard, Report, ReportPart, Section, Table

_PLAIN = re.compile(r"(?!\d+[.)] |.*(?:://|www\.))[A-Za-z0-9(][A-Za-z0-9 .,;:()/'→%?+=-]*")
"""Texts without markup, links or mentions."""
_NUMBER = re.compile(r"[+-]?[0-9.,]*|\?")


def render(report: Report) -> str:
    """Return the report."""
    summary = [f"**{_shown(report.summary)}**"] if report.summary else []
    return "\n\n".join([*summary, *_parts(report.head), *_parts(report.sections)]) + "\n"


def _parts(parts: Sequence[ReportPart]) -> Iterator[str]:
    """Yield the blocks, which empty lines part."""
    for one in parts:
        if Format.MARKDOWN not in one.where:
            continue
        match one:
            case Section():
                inner = list(_parts(one.parts))
                yield from [f"### {one.title}"] if inner and one.title else []
                yield from inner
            case Table() if one.rows:
                yield _table(one)
            case Lines() if one.lines:
                yield from _lines(one)
            case Cards():
                for card in one.shown(Format.MARKDOWN):
                    yield from _card(card)
            case _:
                pass


def _card(card: PoolCard) -> Iterator[str]:
    each = "each " if card.alike else ""
    yield f"**{_shown(card.name)}** {each}" + ", ".join(_shown(text) for text in (card.tag, card.aside) if text)
    yield from _parts(card.parts)
    if len(card.alike) > MAX_NAMED:
        yield _fold(f"{len(card.alike)} pools are alike", [one.name for one in card.alike])


def _table(one: Table[Any]) -> str:
    columns = [each for each in one.columns if Format.MARKDOWN in each.where]
    rows = [[each.page_header or each.header.capitalize() for each in columns]]
    rows += [["---:" if each.is_number else "---" for each in columns]]
    rows += [[_cell(each.value(row), is_code=each.is_code) for each in columns] for row in one.rows]
    return "\n".join([*(f"| {' | '.join(row)} |" for row in rows), *(["", one.note] if one.note else [])])


def _cell(text: str, *, is_code: bool) -> str:
    """Return what a cell has: a bar would end it."""
    if _NUMBER.fullmatch(text):
        return text
    return (code(text) if is_code and text else _shown(text)).replace("|", "\\|")


def _lines(one: Lines) -> Iterator[str]:
    lines, more = one.cut(one.most_on_page)
    if one.intro:
        yield _shown(one.intro)
    match one.form:
        case Form.FOLDED | Form.CODE:
            yield _fold(pluralize(len(lines), "line"), lines)
        case Form.HEADING:
            yield from (f"**{_shown(line)}**" for line in lines)
        case Form.LIST | Form.NOTE if len(lines) > 1 or one.form is Form.LIST:
            yield "\n".join(f"- {_shown(line)}" for line in lines)
        case Form.ORDER:
            yield "\n".join(f"{number}. {_shown(line)}" for number, line in enumerate(lines, 1))
        case _:
            yield from (_shown(line) for line in lines)
    yield from [more] if more else []


def _fold(title: str, lines: Sequence[str]) -> str:
    shown = list(map(visible, lines))
    fence = "`" * max(3, 1 + max(map(_longest_run, shown), default=0))
    return "\n".join([f"<details><summary>{title}</summary>", "", fence, *shown, fence, "", "</details>"])


def _shown(text: str) -> str:
    """Return the text, as code if something in it could be markup."""
    return text if not text or _PLAIN.fullmatch(text) else code(text)


def code(text: str) -> str:
    """Return the text in as many backticks as needed."""
    shown = visible(text)
    fence = "`" * (1 + _longest_run(shown))
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def _longest_run(text: str) -> int:
    """Return the length of the longest run of backticks."""
    return max(map(len, re.findall("`+", text)), default=0)
