"""The YAML writer, against two other readers (YAML 1.1 and 1.2) and yamllint."""

import io
import math
from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML
from yamllint import linter
from yamllint.config import YamlLintConfig

from gpushare.core.emit import json_text, yaml_text
from tests.compiler.reading.test_scalars import KEYWORDS, by_pyyaml, core
from tests.support import scale

DEFAULT_RULES = YamlLintConfig("{extends: default, rules: {line-length: disable, document-start: disable}}")

ADVERSARIAL = [
    "",
    " ",
    "~",
    "y",
    "Y",
    "n",
    "N",
    "yes",
    "Yes",
    "YES",
    "no",
    "NO",
    "on",
    "On",
    "off",
    "OFF",
    "true",
    "True",
    "TRUE",
    "false",
    "null",
    "Null",
    "NULL",
    "none",
    ".nan",
    ".NaN",
    ".inf",
    "-.inf",
    "nan",
    "inf",
    "NaN",
    "Infinity",
    "1e3",
    "1234e56",
    "1E3",
    "0o17",
    "0x1f",
    "010",
    "08",
    "1_000",
    "12:34",
    "190:20:30",
    "1:60",
    "1.",
    ".5",
    "+1",
    "-1",
    "- ",
    "-",
    "--",
    "---",
    "...",
    "--- a",
    "? a",
    "?",
    ": a",
    ":",
    "a: b",
    "a:",
    "a :b",
    "a #b",
    "#a",
    "# a",
    "&a",
    "*a",
    "!a",
    "!!str a",
    "|",
    ">",
    "|-",
    "%YAML 1.1",
    "@a",
    "`a",
    "'a'",
    '"a"',
    "'",
    '"',
    "\\",
    "\\n",
    "{a}",
    "{",
    "}",
    "[a]",
    "[",
    "]",
    ",",
    "a,b",
    "<<",
    "=",
    "a=b",
    "2026-11-20",
    "2026-11-20T00:00:00Z",
    "1.2.3",
    "v1.2",
    "nvidia.com/gpu",
    "nvidia.com/mig-1g.5gb.me",
    "registry.example.org:5000/a/b@sha256:0",
    "/dev/null",
    "~/x",
    "1g.5gb",
    "1234567",
    "12345e67",
    "deadbeef",
    "1e10beef",
    "0b101",
    "0777",
    "1__0",
    "é",
    "日本語",
    "😀",
    "a\xa0b",
    "\xa0",
    "\u200b",
    "\ufeff",
    "a\ufeffb",
    "\ufffe",
    "\uffff",
    "\U0001fffe",
    "\x7f",
    "\x80",
    "\x85",
    "a\x85b",
    "\u2028",
    "\u2029",
    "a\u2028b\nc",
    "\x00",
    "\x01",
    "\x1b[0m",
    "\x0b",
    "\x0c",
    "\r",
    "\r\n",
    "a\r\nb",
    "a\rb",
    "\t",
    "a\tb",
    "\ta",
    "a\t",
    "\n",
    "\n\n",
    "a\n",
    "a\n\n",
    "\na",
    " a\nb",
    "a\n b",
    "a \nb",
    "a\nb ",
    "a\n\nb",
    "a\n\n\n\nb",
    "a\n\n\nb\n",
    "a\n---\nb",
    "a\n...\nb\n",
    "# a\nb: c\n",
    "a\n\tb\n",
    "{{ x }}",
    "{{- x -}}\n",
    "a\n# not a comment\n",
    "key: |\n  x\n",
    "x" * 300,
    "word " * 100,
    "x" * 1001,
    "x y" * 400,
    "a\n" * 50,
]


def same(left: Any, right: Any) -> bool:
    """Equality that tells 1 from True and 1.0, and lets NaN equal itself."""
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return type(left) is type(right) and bool(left == right)


def check(value: Any) -> None:
    text = yaml_text(value)
    assert text.endswith("\n")
    assert same(yaml.safe_load(text), value), text
    reader = YAML(typ="safe", pure=True)
    reader.allow_duplicate_keys = False
    assert same(reader.load(text), value), text
    problems = [f"{problem.line}:{problem.column} {problem.desc}" for problem in linter.run(io.StringIO(text), DEFAULT_RULES)]
    assert not problems, f"{problems}\n{text}"


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
    | st.text("ab \n\t#:-|'\"\\{}é", max_size=12)
    | st.sampled_from(ADVERSARIAL)
)
keys = st.text(st.characters(exclude_categories=["Cs"]), max_size=10) | st.sampled_from(ADVERSARIAL)
values = st.recursive(scalars, lambda part: st.lists(part, max_size=4) | st.dictionaries(keys, part, max_size=4), max_leaves=12)


@settings(max_examples=scale.examples(250))
@given(values)
@example({"a": [], "b": {}, "c": [[], {}, [[1]], [{"x": [1, {"y": 2}]}]]})
@example([[["a\nb\n"], "c\nd"], {"k": "e\nf\n"}])
def test_every_value_round_trips_in_yaml_1_1_and_1_2(value: Any) -> None:
    check(value)


@pytest.mark.parametrize("text", ADVERSARIAL)
def test_tricky_text_round_trips_as_value_key_item_and_document(text: str) -> None:
    check({"value": text, "nested": {text: [text, {text: {text: text}}, [text, [text]]]}})
    check(text)


@pytest.mark.parametrize("number", [0.0, -0.0, 1.0, 1e16, 1e-7, 1.5e300, 1e22, -2.5e-9, math.inf, -math.inf, -1, 10**30])
def test_a_number_keeps_its_type(number: float) -> None:
    check({"number": number, "list": [number]})


def test_every_unquoted_short_word_is_text_in_yaml_1_1_and_1_2() -> None:
    """All of up to three characters, and the keywords in every mixture of cases; whatever is quoted is text anyway."""
    letters = "abefilnorstuxyzAEFINOTUXY0189./-_+:~=<#"
    short = ("".join(word) for length in range(1, 4) for word in product(letters, repeat=length))
    cases = ("".join(word) for keyword in KEYWORDS for word in product(*zip(keyword.lower(), keyword.upper(), strict=True)))
    plain = [text for text in (*short, *cases) if yaml_text(text) == f"{text}\n"]
    assert [text for text in plain if not text == core(text) == by_pyyaml(text)] == []
    assert len(plain) > 10_000


def test_only_unsafe_words_are_quoted() -> None:
    text = yaml_text({"nvidia.com/gpu": "a100-sxm4-40gb", "on": "1e3", "version": "v1.30", "size": "40537"})
    assert text == 'nvidia.com/gpu: a100-sxm4-40gb\n"on": "1e3"\nversion: v1.30\nsize: "40537"\n'


def test_text_of_several_lines_becomes_a_literal_block() -> None:
    assert yaml_text({"a": {"b": "one\n\n  two\n"}}) == "a:\n  b: |\n    one\n\n      two\n"
    assert yaml_text(["one\ntwo"]) == "- |-\n  one\n  two\n"


def test_items_of_a_list_are_indented_under_their_key() -> None:
    assert yaml_text({"a": [{"b": 1, "c": [2]}, [3]], "d": ()}) == "a:\n  - b: 1\n    c:\n      - 2\n  - - 3\nd: []\n"


def test_a_header_becomes_comment_lines() -> None:
    assert yaml_text({"a": None}, header="one\n\ntwo") == "# one\n#\n# two\na: null\n"


def test_lone_surrogate_is_refused() -> None:
    for text in ("\ud800", "a\nb\udfff\n"):
        with pytest.raises(ValueError, match="surrogate"):
            yaml_text({"a": text})


@pytest.mark.parametrize("value", [{1: "a"}, {None: 1}, {"a": object()}, {"a": {1, 2}}, b"bytes"])
def test_types_that_yaml_would_have_to_guess_are_refused(value: Any) -> None:
    with pytest.raises(TypeError):
        yaml_text(value)


def test_json_ends_with_a_newline_and_keeps_non_ascii() -> None:
    assert json_text({"é": [1, None]}) == '{\n  "é": [\n    1,\n    null\n  ]\n}\n'
