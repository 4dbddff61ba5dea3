"""Where findings stand: lines and columns from 1, in characters, the end exclusive."""

import pytest

from gpushare.core.diagnostics import Finding, Path
from gpushare.reading import source
from tests.compiler.reading.texts import place

TEXT = """\
# a comment first
spec:
  pools:
    größe: {3g.20gb: 2, 1g.5gb: 1}
    list:
    - name: a
      size: |
        some
        text

    - plain text
    empty:
    quoted: "x y"
  copy: &copy
    deep: 1
  again: *copy
"""


def found(*path: str | int, on_key: bool = False, text: str = TEXT) -> str:
    read = source.read(text.encode(), "intent.yaml")
    assert read.findings == ()
    return place(read.locate(Finding(code="X", message="", path=path, on_key=on_key))).removeprefix("X ")


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ((), "2:1-2"),
        (("spec", "pools", "größe"), "4:12-35"),
        (("spec", "pools", "größe", "1g.5gb"), "4:33-34"),
        (("spec", "pools", "list"), "6:5-11:17"),
        (("spec", "pools", "list", 0), "6:7-9:13"),
        (("spec", "pools", "list", 0, "size"), "7:13-9:13"),
        (("spec", "pools", "list", 1), "11:7-17"),
        (("spec", "pools", "quoted"), "13:13-18"),
        (("spec", "copy"), "15:5-12"),
        (("spec", "again"), "16:10-15"),
        (("spec", "again", "deep"), "15:11-12"),
    ],
)
def test_finding_is_located_at_its_value(path: Path, expected: str) -> None:
    assert found(*path) == expected


def test_empty_value_is_located_at_its_key() -> None:
    assert found("spec", "pools", "empty") == "12:5-10"


def test_a_finding_on_a_key_is_at_the_key() -> None:
    assert found("spec", "pools", "größe", on_key=True) == "4:5-10"


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (("kind",), "2:1-2"),
        (("spec", "namespace"), "2:1-5"),
        (("spec", "pools", "größe", "2g.10gb"), "4:5-10"),
        (("spec", "pools", "größe", "2g.10gb", "more"), "4:5-10"),
        (("spec", "pools", "list", 0, "missing"), "6:7-9:13"),
        (("spec", "pools", "list", 7), "5:5-9"),
        (("spec", "pools", "quoted", "below"), "13:5-11"),
    ],
)
def test_missing_field_is_located_at_its_innermost_existing_mapping(path: Path, expected: str) -> None:
    assert found(*path) == expected


def test_documented_example_span_ends_after_its_bracket() -> None:
    text = "\n" * 26 + "        layout: {3g.20gb: 2, 1g.5gb: 1}\n"
    assert found("layout", text=text) == "27:17-40"


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
def test_every_line_end_counts_as_one(line_end: str) -> None:
    text = line_end.join(["a: 1", "", "b: {c: 2}", ""])
    assert found("b", "c", text=text) == "3:8-9"
    read = source.read(text.encode(), "intent.yaml")
    assert [read.line(number) for number in (0, 1, 2, 3, 4, 5)] == ["", "a: 1", "", "b: {c: 2}", "", ""]


def test_a_byte_order_mark_takes_no_column() -> None:
    read = source.read(b"\xef\xbb\xbfa: 1", "intent.yaml")
    assert read.findings == ()
    assert read.data == {"a": 1}
    assert place(read.locate(Finding(code="X", message="", path=("a",)))) == "X 1:4-5"


def test_characters_beyond_the_basic_plane_count_once() -> None:
    assert found("a", "b", text='a: {"😀": x, b: z}') == "1:16-17"


def test_a_long_line_stays_whole_and_positions_exact() -> None:
    text = f"a: {{b: {'x' * 15000}, c: 1}}"
    read = source.read(text.encode(), "intent.yaml")
    assert read.line(1) == text
    assert found("a", "c", text=text) == "1:15013-15014"


def test_the_written_form_of_a_value_is_kept() -> None:
    read = source.read(b"a: {b: 1.30, c: 0x1F}", "intent.yaml")
    assert read.data == {"a": {"b": 1.3, "c": 31}}
    assert (read.written(("a", "b")), read.written(("a", "c")), read.written(("a", "d"))) == ("1.30", "0x1F", "")


def test_finding_without_a_position_is_located_at_the_start() -> None:
    read = source.read(b"", "intent.yaml")
    assert read.locate(read.findings[0]) == read.findings[0]
    assert place(read.locate(Finding(code="X", message="", path=("a",)))) == "X 1:1-1"
