"""Findings for people: header, source line, carets, hints. Also selects the format; others are in `report.finding_formats`."""

import os
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Protocol

from gpushare.cli import streams
from gpushare.cli.exits import ExitCode
from gpushare.core.diagnostics import Accepted, Finding, Severity, Span, in_order, is_error
from gpushare.core.wording import pluralize, visible
from gpushare.report import finding_formats, terminal
from gpushare.report.terminal import BOLD, CYAN, RED, YELLOW, Style, width

TAB = "    "


class FindingFormat(StrEnum):
    """How findings are written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"
    SARIF = "sarif"


class LineSource(Protocol):
    """Access to the lines of the text that the findings refer to."""

    def line(self, number: int) -> str:
        """Return the line of that number, from 1."""


Texts = LineSource | Mapping[str, LineSource]
"""The text of all findings, or that of each file: a finding on a file that is not in it has no excerpt."""


def chosen(name: str | None) -> FindingFormat:
    """Return the requested format; by default GitHub's on GitHub Actions, else text."""
    if name:
        return FindingFormat(name)
    return FindingFormat.GITHUB if os.environ.get("GITHUB_ACTIONS") == "true" else FindingFormat.TEXT


def verdict(findings: Sequence[Finding], *, strict: bool) -> ExitCode:
    """Return DONE unless a finding is an error or, with `strict`, a warning."""
    return ExitCode.FINDINGS if any(strict or is_error(finding) for finding in findings) else ExitCode.DONE


def report(  # noqa: PLR0913 - the parts of one report
    findings: Sequence[Finding],
    lines: Texts,
    style: FindingFormat,
    *,
    as_product: bool,
    accepted: Sequence[Accepted] = (),
    files: Sequence[str] | None = None,
) -> None:
    """Write the findings to stdout if they are the command's output, else to stderr, and there nothing if there are none.

    `files` are the bundle's, for the Findings document of a compile.
    """
    ordered = in_order(list(findings))
    if style is FindingFormat.TEXT:
        if as_product:
            streams.write(text(ordered, lines, terminal.detect_style(sys.stdout), accepted))
        elif ordered:
            streams.warn(text(ordered, lines, terminal.detect_style(sys.stderr), accepted))
        return
    if style is FindingFormat.JSON:
        written = finding_formats.json_text(ordered, accepted, files)
    else:
        written = (finding_formats.github_text if style is FindingFormat.GITHUB else finding_formats.sarif_text)(
            ordered, accepted
        )
    if as_product:
        streams.product(written)
    else:
        streams.warn(written)


def text(findings: Sequence[Finding], lines: Texts, style: Style, accepted: Sequence[Accepted] = ()) -> str:
    """Return all findings and a line that counts them, with the codes of those that the intent accepts."""
    return "".join(_one(finding, lines, style) for finding in findings) + counted(findings, accepted) + "\n"


def counted(findings: Sequence[Finding], accepted: Sequence[Accepted] = ()) -> str:
    """Return a text such as `2 errors, 1 warning, 1 accepted (GS504)`; without findings `no errors, no warnings`."""
    errors = sum(is_error(finding) for finding in findings)
    warnings = len(findings) - errors
    parts = [pluralize(number, noun) for number, noun in ((errors, "error"), (warnings, "warning")) if number]
    codes = ", ".join(sorted({one.finding.code for one in accepted}))
    return (", ".join(parts) or "no errors, no warnings") + (f", {len(accepted)} accepted ({codes})" if accepted else "")


def _one(finding: Finding, texts: Texts, style: Style) -> str:
    lines = texts.get(finding.file) if isinstance(texts, Mapping) else texts
    colour = RED if is_error(finding) else YELLOW
    at = finding.span
    place = finding.file + (f":{at.line}:{at.column}" if at else "")
    severity = style.paint(f"{finding.severity} {finding.code}", BOLD, colour)
    shown = [f"{style.paint(visible(place), BOLD)}: {severity}: {visible(finding.message)}"]
    if at and lines:
        shown += _excerpt(lines.line(at.line), at, style, RED if finding.severity is Severity.ERROR else YELLOW)
    return "\n".join(shown) + "\n" + "".join(streams.hint(visible(hint)) for hint in finding.hints)


def _excerpt(line: str, at: Span, style: Style, colour: str) -> list[str]:
    """Return the source line with its number, and carets under the span; the first line of several."""
    start, most = at.column - 1, style.columns
    end = max(at.column, at.end_column if at.end_line == at.line else len(line) + 1) - 1
    # Of the text before, in and after the span a terminal's width each: a line may have a million characters.
    parts = line[max(0, start - most) : start], line[start : min(end, start + most)], line[end : end + most]
    before, marked, after = (visible(part.replace("\t", TAB)) for part in parts)
    before, marked, after = _window(before, marked, after, style)
    carets = "^" * max(1, width(marked))
    return [
        f"{style.paint(f'{at.line:>5} |', CYAN)} {before}{marked}{after}".rstrip(),
        f"{style.paint('      |', CYAN)} {' ' * width(before)}{style.paint(carets, BOLD, colour)}",
    ]


def _window(before: str, marked: str, after: str, style: Style) -> tuple[str, str, str]:
    """Return the three parts cut to the terminal's width, so that the beginning of the marked part is always visible."""
    room = style.columns - 9
    if width(before + marked + after) <= room:
        return before, marked, after
    dots = style.ellipsis
    most_before = room // 2 if width(marked) > room // 2 else room - width(marked) - 10
    before = terminal.clip_start(before, most_before, dots)
    marked = terminal.fit(marked, max(room - width(before), 4), dots)
    rest = room - width(before) - width(marked)
    return before, marked, terminal.fit(after, rest, dots) if rest > len(dots) else ""
