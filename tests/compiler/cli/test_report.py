"""How a finding looks to a person: the header, the source line, carets under the value, hints."""

import re

import pytest

from gpushare.cli import report
from gpushare.cli.exits import ExitCode
from gpushare.core.diagnostics import Finding, Severity, Span
from gpushare.report.terminal import Style, width


class Lines:
    """A text of which only one line matters."""

    def __init__(self, text: str) -> None:
        self.text = text

    def line(self, number: int) -> str:
        """That line, whatever its number."""
        return self.text


def shown(line: str, start: int, end: int, columns: int = 120, end_line: int = 27) -> list[str]:
    span = Span(line=27, column=start, end_line=end_line, end_column=end)
    finding = Finding(code="GS402", message="m", file="f", span=span)
    return report.text([finding], Lines(line), Style(columns=columns)).splitlines()[1:3]


def test_finding_is_printed_in_the_documented_format() -> None:
    finding = Finding(
        code="GS402",
        message="layout {3g.20gb: 2, 1g.5gb: 1} does not fit an A100-SXM4-40GB",
        hints=("two 3g.20gb take all eight memory slices; nothing is left for 1g.5gb", "nearest valid: {3g.20gb: 2}"),
        file="intent.yaml",
        span=Span(line=27, column=17, end_line=27, end_column=40),
    )
    text = report.text([finding], Lines("        layout: {3g.20gb: 2, 1g.5gb: 1}"), Style())
    assert text == (
        "intent.yaml:27:17: error GS402: layout {3g.20gb: 2, 1g.5gb: 1} does not fit an A100-SXM4-40GB\n"
        "   27 |         layout: {3g.20gb: 2, 1g.5gb: 1}\n"
        "      |                 ^^^^^^^^^^^^^^^^^^^^^^^\n"
        "   = two 3g.20gb take all eight memory slices; nothing is left for 1g.5gb\n"
        "   = nearest valid: {3g.20gb: 2}\n"
        "1 error\n"
    )


@pytest.mark.parametrize(
    ("line", "start", "end"),
    [
        ("card: t4", 7, 9),
        ("\tcard: t4", 8, 10),
        ("名前: 値t4", 6, 8),
        ("e\u0301: t4", 5, 7),
        ("a: \U0001f600 # t4", 8, 10),
        ("\x1b[31m: t4", 8, 10),
    ],
    ids=["plain", "tab", "wide", "combining", "emoji", "escape"],
)
def test_carets_are_under_the_value_after_any_characters(line: str, start: int, end: int) -> None:
    text, carets = shown(line, start, end)
    assert width(text[: text.index("t4")]) == carets.index("^")
    assert carets.count("^") == 2


def test_carets_are_as_wide_as_wide_characters() -> None:
    assert shown("a: 値値", 4, 6)[1].count("^") == 4


def test_control_characters_of_the_input_are_escaped() -> None:
    finding = Finding(code="GS101", message="no \x1b[2J\u202e here", hints=("\x07",), file="\x1b]0;x")
    text = report.text([finding], Lines(""), Style())
    assert not {char for char in text if char < " "} - {"\n"}
    assert "\u202e" not in text


def test_a_position_without_extent_gets_one_caret() -> None:
    assert shown("pools:", 7, 7)[1].endswith("       ^")


def test_first_line_of_a_multi_line_value_is_shown() -> None:
    text, carets = shown("  layout: {3g.20gb: 2,", 11, 5, end_line=29)
    assert text == "   27 |   layout: {3g.20gb: 2,"
    assert carets == "      |           ^^^^^^^^^^^^"


@pytest.mark.parametrize("columns", [40, 80, 120])
@pytest.mark.parametrize(("start", "end"), [(1, 6), (300, 306), (590, 601), (1, 601), (200, 500)])
def test_long_lines_are_clipped_around_the_value(columns: int, start: int, end: int) -> None:
    text, carets = shown("x" * (start - 1) + "V" * (end - start) + "y" * (601 - end), start, end, columns)
    assert width(text) <= columns
    assert text[carets.index("^")] == "V"
    assert set(text[carets.index("^") : carets.rindex("^")]) <= {"V", "…"}


def test_a_finding_without_a_position_has_no_source_line() -> None:
    text = report.text([Finding(code="GS704", message="too large", file="intent.yaml")], Lines("never"), Style())
    assert text == "intent.yaml: error GS704: too large\n1 error\n"


def test_summary_line_counts_errors_and_warnings() -> None:
    error, warning = Finding(code="GS101", message="m"), Finding(code="GS504", message="m", severity=Severity.WARNING)
    assert report.counted([error, error, warning]) == "2 errors, 1 warning"
    assert report.counted([]) == "no errors, no warnings"


def test_warnings_fail_only_a_strict_run() -> None:
    warning = Finding(code="GS504", message="m", severity=Severity.WARNING)
    assert report.verdict([warning], strict=False) is ExitCode.DONE
    assert report.verdict([warning], strict=True) is ExitCode.FINDINGS
    assert report.verdict([Finding(code="GS101", message="m")], strict=False) is ExitCode.FINDINGS


def test_colour_adds_nothing_but_escapes() -> None:
    finding = Finding(code="GS402", message="m", file="f", span=Span(line=1, column=1, end_line=1, end_column=3))
    plain, coloured = (report.text([finding], Lines("ab"), Style(coloured=colour)) for colour in (False, True))
    assert coloured != plain
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain


@pytest.mark.parametrize(("value", "expected"), [("true", report.FindingFormat.GITHUB), ("", report.FindingFormat.TEXT)])
def test_github_actions_format_is_the_default_on_github(
    value: str, expected: report.FindingFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", value)
    assert report.chosen(None) is expected
    assert report.chosen("sarif") is report.FindingFormat.SARIF
