"""What fits a terminal: tables, clipping, bars, and what falls back where box characters cannot be written."""

import io

import pytest

from gpushare.core.wording import visible
from gpushare.report import model, terminal, text
from gpushare.report.model import Cell, Map
from gpushare.report.pool_facts import ranges
from gpushare.report.terminal import Style, width
from gpushare.report.text import bar


class Stream(io.TextIOWrapper):
    """A stream that may be a terminal."""

    def __init__(self, *, terminal: bool = True, encoding: str = "utf-8") -> None:
        super().__init__(io.BytesIO(), encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        """As told."""
        return self.terminal


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "COLUMNS", "TERM"):
        monkeypatch.delenv(name, raising=False)


def test_colour_is_used_only_on_capable_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    assert terminal.detect_style(Stream()).coloured
    assert not terminal.detect_style(Stream(terminal=False)).coloured
    monkeypatch.setenv("TERM", "dumb")
    assert not terminal.detect_style(Stream()).coloured
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert not terminal.detect_style(Stream()).coloured


@pytest.mark.parametrize(("encoding", "boxes"), [("utf-8", True), ("ascii", False), ("latin-1", False)])
def test_box_characters_are_used_if_the_encoding_has_them(encoding: str, boxes: bool) -> None:
    assert terminal.detect_style(Stream(encoding=encoding)).boxes is boxes


@pytest.mark.parametrize(("columns", "expected"), [("100", 100), ("5", 40), ("none", 80), ("", 80)])
def test_the_width_can_be_set_and_never_gets_too_small(columns: str, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    assert terminal.detect_style(Stream()).columns == expected


def test_a_table_fits_and_the_widest_column_gives_way() -> None:
    rows = [("a", "x" * 200, "12345"), ("b", "値" * 60, "1")]
    text = terminal.table(("NAME", "WHY", "NUMBER"), rows, Style(columns=60), numbers=("NUMBER",))
    assert all(width(line) <= 60 for line in text.splitlines())
    assert "12345" in text
    assert text.count("…") == 2


def test_a_name_is_never_cut() -> None:
    names = [f"{'gke-prod-europe-west4-gpu-pool-' * 3}{number}" for number in range(2)]
    rows = [(name, "x" * 200, "12345") for name in names]
    text = terminal.table(("NODE", "WHY", "USED"), rows, Style(columns=60), numbers=("USED",))
    assert all(name in text and "12345" in text for name in names)
    assert text.count("xxxxxxx…") == 2


def test_less_important_columns_are_dropped_before_truncating() -> None:
    rows = [("x" * 30, "spare", "12")]
    headers = ("NAME", "MODE", "NUMBER")
    narrow, wide = (
        terminal.table(headers, rows, Style(columns=columns), numbers=("NUMBER",), dropped=("MODE",)) for columns in (40, 80)
    )
    assert "x" * 30 in narrow
    assert "spare" not in narrow
    assert narrow.splitlines()[1].endswith("    12")
    assert "spare" in wide


def test_columns_are_left_out_one_after_the_other_and_some_are_never_cut() -> None:
    row = ("render-farm-number-01", "rtx-pro-6000-workstation", "time-slicing", "12", "8", "time-slicing-a66244aa")
    headers = ("POOL", "CARD", "MODE", "NODES", "GPUS/NODE", "PROFILE")
    wide, narrow, least = (
        terminal.table(
            headers, [row], Style(columns=columns), numbers=("NODES", "GPUS/NODE"), dropped=("PROFILE", "MODE"), uncut=("CARD",)
        )
        for columns in (120, 80, 66)
    )
    assert all(cell in wide for cell in row)
    assert "PROFILE" not in narrow
    assert all(cell in narrow for cell in row[:-1])
    assert "time-slicing" not in least
    assert "rtx-pro-6000-workstation" in least


def test_empty_text_gets_no_colour() -> None:
    assert Style(coloured=True).paint("", terminal.DIM) == ""
    assert Style(coloured=True).paint("x", terminal.DIM) == "\x1b[2mx\x1b[0m"


def test_output_without_a_terminal_is_not_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("a", "x" * 200, "12345")]
    assert "x" * 200 in terminal.table(("NAME", "WHY", "NUMBER"), rows, terminal.detect_style(io.StringIO()))
    monkeypatch.setenv("COLUMNS", "60")
    assert "x" * 200 not in terminal.table(("NAME", "WHY", "NUMBER"), rows, terminal.detect_style(io.StringIO()))


@pytest.mark.parametrize("style", [Style(), Style(boxes=False), Style(columns=40)], ids=["boxes", "ascii", "narrow"])
def test_bar_is_a_rectangle_of_supported_characters(style: Style) -> None:
    cells = [Cell(start=0, size=1, labels=("1g.5gb+me×2", "2200Mi")), Cell(start=4, size=4, labels=("3g.20gb",))]
    text = bar(Map(cells=cells, slices=8), style)
    lines = text.splitlines()
    assert len({width(line) for line in lines}) == 1
    assert width(lines[0]) <= style.columns
    assert style.boxes or set(text) - {"×"} <= set(map(chr, range(128)))


def test_no_arrow_is_written_where_the_encoding_lacks_it() -> None:
    columns = (model.Column[str](header="CHANGE", value=str),)
    parts = [
        model.Lines(lead="a → b", lines=["c → d"]),
        model.Table(columns=columns, rows=["e → f"], under=lambda row: f"under {row}"),
        Map(cells=[], slices=7, title="g → h", aside="i → j"),
    ]
    report = model.Report(sections=(model.bare(*parts),))
    assert text.render(report, Style()).count("→") == 6
    assert text.render(report, Style(boxes=False)).isascii()


def test_a_bar_is_to_scale_and_shows_what_is_unused() -> None:
    text = bar(
        Map(
            cells=[Cell(start=0, size=2, labels=("a",)), Cell(start=4, size=4, labels=("b",))],
            slices=8,
            is_framed=False,
        ),
        Style(),
    )
    first, unused, last = text.strip().strip("│").split("│")
    assert len(first) == len(unused)
    assert len(last) == 2 * len(first) + 1
    assert set(unused) == {"░"}


def test_long_labels_wrap_without_losing_text() -> None:
    text = bar(Map(cells=[Cell(start=0, size=1, labels=("1g.24gb+me.all×12",))], slices=8, is_framed=False), Style(columns=40))
    assert "".join(text.replace("│", "").replace("░", "").split()) == "1g.24gb+me.all×12"


@pytest.mark.parametrize(("replicas", "dividers"), [(1, 0), (2, 1), (4, 3), (8, 7), (9, 0)])
def test_replicas_divide_a_bar_into_equal_segments(replicas: int, dividers: int) -> None:
    cell = Cell(start=0, size=8, labels=("whole GPU",), replicas=replicas)
    assert bar(Map(cells=[cell], slices=8), Style()).count("┊") == dividers
    assert bar(Map(cells=[cell], slices=8), Style(boxes=False)).count(":") == dividers


def test_a_cell_too_narrow_for_its_segments_has_none() -> None:
    cell = Cell(start=0, size=1, labels=("1g.5gb×8",), replicas=8)
    assert "┊" not in bar(Map(cells=[cell], slices=8), Style(columns=40))


@pytest.mark.parametrize(("colours", "code"), [(0, ""), (256, "48;5;"), (2**24, "48;2;3;112;176")])
def test_an_instance_has_the_colour_of_its_size_as_far_as_the_terminal_can(colours: int, code: str) -> None:
    cell = Cell(start=0, size=4, labels=("3g.20gb",), profile="3g.20gb")
    text = bar(Map(cells=[cell], slices=8), Style(coloured=bool(colours), colours=colours))
    assert ("\x1b[" in text) is bool(colours)
    assert code in text


def test_number_of_terminal_colours_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLORTERM", raising=False)
    assert terminal.detect_style(Stream()).colours == 0
    monkeypatch.setenv("TERM", "xterm-256color")
    assert terminal.detect_style(Stream()).colours == 256
    monkeypatch.setenv("COLORTERM", "truecolor")
    assert terminal.detect_style(Stream()).colours == 2**24
    assert terminal.detect_style(Stream(terminal=False)).colours == 0
    monkeypatch.setenv("NO_COLOR", "1")
    assert terminal.detect_style(Stream()).colours == 0


@pytest.mark.parametrize(
    ("taken", "expected"),
    [([], ((0, 8),)), ([(0, 8)], ()), ([(4, 2), (0, 1)], ((1, 3), (6, 2))), ([(0, 4), (4, 4)], ())],
)
def test_gaps_are_the_unoccupied_ranges(taken: list[tuple[int, int]], expected: tuple[tuple[int, int], ...]) -> None:
    assert model.gaps(taken, 8) == expected


@pytest.mark.parametrize(("numbers", "expected"), [([0], "0"), ([0, 1, 2, 3, 6], "0-3, 6"), ([7, 5], "5, 7"), ([0, 1], "0-1")])
def test_ranges_are_abbreviated(numbers: list[int], expected: str) -> None:
    assert ranges(numbers) == expected


@pytest.mark.parametrize(
    ("text", "cells", "start", "end"),
    [
        ("abcdef", 6, "abcdef", "abcdef"),
        ("abcdefg", 6, "abcde…", "…cdefg"),
        ("値値値値", 6, "値値…", "…値値"),
        ("ae\u0301b値cd", 5, "ae\u0301b…", "…値cd"),
    ],
)
def test_text_is_cut_at_either_end_by_its_cells(text: str, cells: int, start: str, end: str) -> None:
    assert terminal.fit(text, cells) == start
    assert terminal.clip_start(text, cells) == end


@pytest.mark.parametrize("character", ["\x1b", "\u202e", "\u200b", "\u2066", "\udcff", "\x85"])
def test_control_characters_are_escaped_and_others_kept(character: str) -> None:
    shown = visible(f"a\u00a0値{character}b")
    assert character not in shown
    assert shown.startswith("a\u00a0値\\")
