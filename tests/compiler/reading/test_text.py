"""What is wrong with a text, and where: GS001 to GS011, with libyaml and without."""

import pytest
import yaml

from gpushare.reading import source
from tests.compiler.reading.texts import INTENT, of_text

CASES = [
    pytest.param(b"a: \xff", ["GS001 1:4-5"], id="a byte that is not UTF-8"),
    pytest.param(b"\xef\xbb\xbfa:\n  b\xc3: 1", ["GS001 2:4-5"], id="half a character after a byte order mark"),
    pytest.param("a: b".encode("utf-16"), ["GS001 1:1-1"], id="UTF-16"),
    pytest.param("a: b".encode("utf-16-be"), [f"GS001 1:{n}-{n + 1}" for n in (1, 3, 5, 7)], id="UTF-16 without mark"),
    pytest.param("a: b".encode("utf-32"), ["GS001 1:1-1"], id="UTF-32"),
    pytest.param(b"a: b\n\x00c\x1b: d", ["GS001 2:1-2", "GS001 2:3-4"], id="control characters"),
    pytest.param(b"a: \xed\xa0\x80", ["GS001 1:4-5"], id="a surrogate in bytes"),
    pytest.param("a: x\u2028b\u0085\ufeff".encode(), ["GS001 1:5-6", "GS001 1:7-8", "GS001 1:8-9"], id="line breaks of 1.1"),
    pytest.param("a:\n\tb: 1", ["GS003 2:1-2"], id="a tab as indentation"),
    pytest.param("a:\n  b: 1\n \tc: 1", ["GS003 3:2-3"], id="a tab behind a space"),
    pytest.param('a: "x\n\nb: c\n', ["GS003 1:4-5"], id="quotes that are not closed"),
    pytest.param("a: [1, 2\n", ["GS003 1:4-5"], id="a bracket that is not closed"),
    pytest.param("a: b: c", ["GS003 1:5-6"], id="a colon too many"),
    pytest.param("a: @x", ["GS003 1:4-5"], id="a character that begins nothing"),
    pytest.param("a:\n  b: 1\n c: 2", ["GS003 3:2-3"], id="indentation that fits nothing"),
    pytest.param("%YAML 2.0\n---\na: 1", ["GS003 1:1-2"], id="another YAML"),
    pytest.param("a: 1\nb: 2\na: 3", ["GS004 3:1-2"], id="a key twice"),
    pytest.param('a: {x: 1, "x": 2, x: 3}', ["GS004 1:11-14", "GS004 1:19-20"], id="a key three times"),
    pytest.param("a: no\non: {b: y}", ["GS005 2:1-3", "GS005 1:4-6", "GS005 2:9-10"], id="truth values of 1.1"),
    pytest.param("- 010\n- 1e3\n- 12:34", ["GS005 1:3-6", "GS005 2:3-6", "GS005 3:3-8"], id="numbers of 1.1"),
    pytest.param("a: 2001-01-01", ["GS005 1:4-14"], id="a date"),
    pytest.param("a: [=, <<, .inf]", ["GS005 1:5-6", "GS005 1:8-10", "GS005 1:12-16"], id="other words of 1.1"),
    pytest.param("a: 1\n---\nb: 1\n--- c", ["GS006 2:1-4", "GS006 4:1-4"], id="three documents"),
    pytest.param("a: &x [*x]", ["GS007 1:8-10"], id="an alias within its anchor"),
    pytest.param("a: *x\nb: *y", ["GS007 1:4-6", "GS007 2:4-6"], id="aliases of nothing"),
    pytest.param("[" * 65 + "]" * 65, ["GS008 1:65-66"], id="brackets 65 deep"),
    pytest.param("a: {<<: {b: 1}, c: 2}", ["GS009 1:5-7"], id="a merge key"),
    pytest.param("1: a\ntrue: b\n~: c", ["GS010 1:1-2", "GS010 2:1-5", "GS010 3:1-2"], id="keys that are no text"),
    pytest.param("{a: 1}: b\n? [c]\n: d", ["GS010 1:1-2", "GS010 2:3-4"], id="collections as keys"),
    pytest.param("a: &x {b: 1}\n*x : c", ["GS010 2:1-3"], id="an alias of a collection as key"),
    pytest.param("a: !!str 1\nb: &x !python/object:os.system {}\n", ["GS010 1:4-9", "GS010 2:7-31"], id="tags"),
    pytest.param("a: &x # !no\n  !yes b\n", ["GS010 2:3-7"], id="a tag behind a comment"),
    pytest.param("&a #\n!", ["GS010 2:1-2"], id="a tag alone behind a comment"),
    pytest.param("", ["GS011 1:1-1"], id="nothing"),
    pytest.param("# only this\n", ["GS011 1:1-2"], id="a comment"),
    pytest.param("---\n...\n", ["GS011 1:1-2"], id="an empty document"),
    pytest.param("null\n", ["GS011 1:1-2"], id="null"),
]


@pytest.fixture(params=["libyaml", "python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    loader = yaml.SafeLoader if request.param == "python" else yaml.CSafeLoader
    monkeypatch.setattr(source, "_LOADER", loader)
    return str(request.param)


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_invalid_text_is_reported_with_code_and_position(text: str | bytes, expected: list[str], parser: str) -> None:
    assert sorted(of_text(text)) == sorted(expected)


@pytest.mark.parametrize(
    ("text", "data"),
    [
        (
            "a: [~, null, true, False, 0, -7, +7, 0x1F, 1.5, .5, -1.0e+3, 'no', \"010\"]",
            {"a": [None, None, True, False, 0, -7, 7, 31, 1.5, 0.5, -1000.0, "no", "010"]},
        ),
        (
            "a: [nOt, 3g.20gb, 1g.5gb+me, 10s, 80Gi, v1.2.3, 0000:3b:00.0, 1.2.3, '<<']",
            {"a": ["nOt", "3g.20gb", "1g.5gb+me", "10s", "80Gi", "v1.2.3", "0000:3b:00.0", "1.2.3", "<<"]},
        ),
        ("a: |\n  x\n  y\nb: >-\n  x\n  y\n", {"a": "x\ny\n", "b": "x y"}),
        ("a: &x {b: 1}\nc: *x\nd: [*x, *x]", {"a": {"b": 1}, "c": {"b": 1}, "d": [{"b": 1}, {"b": 1}]}),
        ("&k key: 1\nother: *k", {"key": 1, "other": "key"}),
        ("? a\n: 1\n? b", {"a": 1, "b": None}),
        ("%YAML 1.2\n---\na: 1\n...\n", {"a": 1}),
        ('"\\u00e9\\u2028": "\\t"', {"é\u2028": "\t"}),
        ("[1]", [1]),
    ],
)
def test_valid_text_is_parsed_to_plain_values(text: str, data: object, parser: str) -> None:
    read = source.read(text.encode(), "intent.yaml")
    assert read.findings == ()
    assert read.data == data
    assert repr(read.data) == repr(data)


def test_lone_surrogate_in_an_escape_is_refused(parser: str) -> None:
    assert [place.split()[0] for place in of_text('a: "\\ud800"')] == ["GS003"]
    assert [place.split()[0] for place in of_text('a: "\\U00110000"')] == ["GS003"]


def test_all_findings_of_a_text_that_parses_come_at_once() -> None:
    text = INTENT.replace("t4", "010") + "      card: on\n      <<: {}\n      2: !x y\n"
    assert of_text(text) == [
        "GS005 7:13-16",
        "GS004 11:7-11",
        "GS005 11:13-15",
        "GS009 12:7-9",
        "GS010 13:7-8",
        "GS010 13:10-12",
        "GS005 13:13-14",
    ]


def test_findings_before_a_syntax_error_are_kept() -> None:
    assert of_text("a: no\nb: [1, 2\n") == ["GS005 1:4-6", "GS003 2:4-5"]


def test_a_finding_knows_its_path_and_file() -> None:
    found = source.read(b"spec:\n  pools:\n    a: [1, no]\n", "intent.yaml").findings[0]
    assert (found.path, found.file) == (("spec", "pools", "a", 1), "intent.yaml")


def test_tab_character_is_reported_as_a_tab() -> None:
    assert "tab" in source.read(b"a:\n\tb: 1", "f").findings[0].message


def test_a_second_key_names_the_line_of_the_first() -> None:
    assert "line 2" in source.read(b"a: 1\nb: 2\r\n\rb: 3", "f").findings[0].message


def test_file_size_is_checked_before_the_content() -> None:
    assert of_text(b"\xff" * (source.MAX_BYTES + 1)) == ["GS002 1:1-1"]
    assert of_text(b"a: " + b"x" * (source.MAX_BYTES - 3)) == []
