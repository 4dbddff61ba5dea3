"""The two validators agree, the schemas use nothing that one of them lacks, and editors find what they need."""

import copy
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator, FormatChecker

from gpushare.core import resources
from gpushare.core.units import parse_duration, parse_quantity, parse_share
from gpushare.reading import schema, source
from tests.compiler.reading.texts import FULL, INTENT
from tests.support import scale

NAMES = sorted(path.stem for path in resources.schema("intent.v1").parent.glob("*.json"))
INTENT_SCHEMA = schema.load("intent.v1")
ANNOTATIONS = {
    "$schema",
    "$id",
    "$ref",
    "title",
    "description",
    "default",
    "examples",
    "definitions",
    "then",
    "patternErrorMessage",
}
HOLDERS = {"properties", "definitions"}


def subschemas(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield part
    for keyword, argument in part.items():
        inner: list[Any] = []
        if keyword in HOLDERS:
            inner = list(argument.values())
        elif keyword in ("allOf", "anyOf", "oneOf"):
            inner = argument
        elif keyword in ("additionalProperties", "items", "not", "if", "then", "propertyNames") and argument is not False:
            inner = [argument]
        for item in inner:
            yield from subschemas(item)


@pytest.mark.parametrize("name", NAMES)
def test_a_shipped_schema_is_valid_and_uses_known_keywords_only(name: str) -> None:
    loaded = schema.load(name)
    Draft7Validator.check_schema(loaded)
    assert loaded["$schema"] == "http://json-schema.org/draft-07/schema#"
    assert loaded["$id"] == f"https://gpushare.dev/schemas/{name}.json"
    for part in subschemas(loaded):
        assert set(part) <= set(schema.KEYWORDS) | ANNOTATIONS
        assert ("if" in part) == ("then" in part)
        assert "pattern" not in part or re.compile(part["pattern"])
        assert part.get("format") in {None, *schema.FORMATS}
        assert not any(isinstance(word, dict | list) for word in [*part.get("enum", ()), part.get("const")])
        if part.get("uniqueItems"):
            assert "enum" in part["items"] or part["items"]["type"] in ("string", "integer"), "only scalars are told apart"
        if "$ref" in part:
            assert set(part) <= ANNOTATIONS, "draft-07 ignores what stands beside $ref"
            assert part["$ref"].removeprefix("#/definitions/") in loaded["definitions"]


def test_every_field_of_the_intent_has_a_description_for_editors() -> None:
    for part in subschemas(INTENT_SCHEMA):
        for name, inner in part.get("properties", {}).items():
            target = INTENT_SCHEMA["definitions"].get(inner.get("$ref", "").removeprefix("#/definitions/"), {})
            condition = inner.keys() <= {"const", "enum", "not", "type"}
            assert inner.get("description") or target.get("description") or condition, name


def test_schema_defaults_and_examples_are_valid() -> None:
    for part in subschemas(INTENT_SCHEMA):
        for value in [*part.get("examples", ()), *([part["default"]] if "default" in part else [])]:
            assert validator(part).is_valid(value), (part, value)


@pytest.mark.parametrize("name", NAMES)
def test_schema_patterns_are_anchored_in_every_dialect(name: str) -> None:
    for part in subschemas(schema.load(name)):
        if "pattern" in part:
            assert part["pattern"].startswith("^")
            assert part["pattern"].endswith("$(?!\\n)"), "Python's $ also matches before a last line break"


def validator(part: dict[str, Any]) -> Draft7Validator:
    checker = FormatChecker(formats=())
    for name, holds in schema.FORMATS.items():
        checker.checks(name)(lambda value, holds=holds: not isinstance(value, str) or holds(value))
    return Draft7Validator({**part, "definitions": INTENT_SCHEMA["definitions"]}, format_checker=checker)


WHOLE = validator(INTENT_SCHEMA)
DOCUMENTS = [source.read(text.encode(), "f").data for text in (INTENT, FULL)]
WORDS = sorted(set(re.findall(r"[\w.%$-]+", FULL)) | set(re.findall(r'"(\w+)"', json.dumps(INTENT_SCHEMA))))
VALUES = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([None, True, False, 0, 1, -1, 2, 4.0, 2.5, 16, 17, 1024, 1025, 1 << 63]),
    st.sampled_from(["", "none", "10s\n", "0s", "1.5Ki", "99E", "3%"]),
    st.sampled_from([[], {}, [1, 1], ["a", "a"], [True, 1], [0, False], ["a", {}], [[]]]),
    st.sampled_from([{"memory": "1Gi"}, {"memory": 1, "x": 2}]),
)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in items:
        yield from places(inner, (*path, step))


PLACES = [list(places(document))[1:] for document in DOCUMENTS]


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A right document with up to three mistakes: a value replaced, a field dropped, or one more, known somewhere or not.

    A value that is drawn is copied, since a later mistake may change it, even put it into itself.
    """
    which = draw(st.integers(0, 1))
    document = copy.deepcopy(DOCUMENTS[which])
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(PLACES[which]))
        parent = document
        try:
            for step in path[:-1]:
                parent = parent[step]
            if isinstance(parent, dict) != isinstance(path[-1], str):
                continue  # keys are always text
            kind = draw(st.integers(0, 3))
            if kind == 0:
                del parent[path[-1]]
            elif kind == 1 and isinstance(parent, dict):
                parent[draw(st.sampled_from(WORDS))] = copy.deepcopy(draw(VALUES))
            else:
                parent[path[-1]] = copy.deepcopy(draw(VALUES))
        except (KeyError, IndexError, TypeError):
            continue  # an earlier mistake has taken the place away
    return document


@settings(max_examples=scale.examples(2000), suppress_health_check=list(HealthCheck))
@given(mutated())
def test_both_validators_agree_and_every_refusal_has_findings(document: Any) -> None:
    accepted = schema.accepts(INTENT_SCHEMA, document)
    assert accepted == WHOLE.is_valid(document)
    findings = schema.violations(document, "intent.v1", ())
    assert accepted == (not findings)
    assert len({(finding.code, finding.path, finding.message) for finding in findings}) == len(findings)
    assert all(re.fullmatch("GS10[1-8]", finding.code) for finding in findings)


QUANTITIES = st.from_regex(r"[0-9.]{0,6}(k|Ki|m|M|Mi|G|Gi|GB|E|Ei|e3|%)?\n?", fullmatch=True)


@settings(max_examples=scale.examples(600))
@given(QUANTITIES | st.from_regex(r"([0-9]{1,3}[hms]){0,4}\n?", fullmatch=True))
def test_schema_patterns_accept_what_the_parsers_accept(text: str) -> None:
    definitions = INTENT_SCHEMA["definitions"]
    accepted = {
        name: schema.accepts({"$ref": f"#/definitions/{name}", "definitions": definitions}, text) for name in definitions
    }
    assert accepted["quantity"] == (parse_quantity(text) is not None)
    assert accepted["duration"] == (parse_duration(text) is not None)
    assert accepted["capValue"] == (parse_quantity(text) is not None)
    if accepted["share"]:
        assert parse_share(text) is not None


def test_valid_document_is_checked_without_jsonschema() -> None:
    program = (
        "import sys\n"
        "from gpushare.intent import reader\n"
        "from gpushare.reading import schema, source\n"
        "data = sys.stdin.buffer.read()\n"
        "read = source.read(data, 'f')\n"
        "assert schema.check(read) == []\n"
        "assert len(reader.build(read.data).pools) == 1001\n"
        "assert not {'jsonschema', 'difflib'} & set(sys.modules)\n"
    )
    names = ", ".join(f"gpu-{number:04}" for number in range(20))
    pool = "    p{}: {{card: t4, nodes: {{names: [{}]}}, gpusPerNode: 4, sharing: {{mode: mig, layout: {{2g.10gb: 2}}}}}}\n"
    text = INTENT + "".join(pool.format(number, names) for number in range(1000))
    run = subprocess.run([sys.executable, "-c", program], input=text.encode(), capture_output=True, check=False)
    assert run.returncode == 0, run.stderr.decode()
