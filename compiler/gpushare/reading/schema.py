"""Whether a document conforms to a JSON Schema.

Owns the loading of schemas, and `accepts`, a small interpreter of exactly the keywords that our schemas use. What is wrong is
found by jsonschema, and worded, in `schema_findings`. A document without violations needs neither: that saves each call the
60 ms of their import, half of a cold compile, and one of 300 pools 300 ms. A test checks that the two give the same results.
"""

import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeGuard

from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import parse_duration, parse_quantity, parse_share
from gpushare.reading.source import Source, read

Schema = Mapping[str, Any]

_MAX_MATCH_LENGTH = 10_000


@cache
def load(name: str) -> dict[str, Any]:
    """Return a shipped schema by name, such as `intent.v1`."""
    loaded: dict[str, Any] = json.loads(resources.schema(name).read_text(encoding="utf-8"))
    return loaded


def check(source: Source) -> list[Finding]:
    """Return a document's violations of the intent schema: findings GS101 to GS108 with paths, without positions."""
    return _found(source.data, load("intent.v1"), (), source.written)


def violations(document: object, wanted: str | Schema, base: Path) -> list[Finding]:
    """Return the violations of a schema, or a shipped schema's name, in the part of a document at path `base`."""
    return _found(document, load(wanted) if isinstance(wanted, str) else wanted, base, lambda _: "")


def _found(document: object, schema: Schema, base: Path, written: Callable[[Path], str]) -> list[Finding]:
    if accepts(schema, document):
        return []
    from gpushare.reading import schema_findings  # noqa: PLC0415 - see the module's docstring

    wrong = schema_findings.violations(document, schema, KEYWORDS, FORMATS)
    return schema_findings.findings(wrong, document, schema, base, written)


def accepts(schema: Schema, value: object) -> bool:
    """Whether the value conforms to the schema: draft-07, limited to the keywords in `KEYWORDS`."""
    return _holds(schema, value, schema)


def _holds(schema: Schema, value: Any, root: Schema) -> bool:
    reference = schema.get("$ref")
    if reference is not None:
        return _holds(root["definitions"][reference.removeprefix("#/definitions/")], value, root)
    for keyword, argument in schema.items():
        holds = KEYWORDS.get(keyword)
        if holds and not holds(argument, value, schema, root):
            return False
    return True


def _is(name: str, value: object) -> bool:
    if name == "integer":
        return _number(value) and (isinstance(value, int) or value.is_integer())
    if name == "number":
        return _number(value)
    return isinstance(value, _PYTHON[name])


_PYTHON = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _properties(argument: Any, value: Any, _: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(_holds(argument[key], value[key], root) for key in argument.keys() & value.keys())


def _additional(argument: Any, value: Any, schema: Schema, root: Schema) -> bool:
    if not isinstance(value, dict):
        return True
    known = schema.get("properties", {})
    extra = [item for key, item in value.items() if key not in known]
    return not extra if argument is False else all(_holds(argument, item, root) for item in extra)


def _unique(argument: Any, value: Any, *_: Schema) -> bool:
    # Lists and mappings count as distinct: our schemas require only scalars to be unique.
    if not argument or not isinstance(value, list):
        return True
    scalars = [(isinstance(item, bool), item) for item in value if not isinstance(item, dict | list)]
    return len(set(scalars)) == len(scalars)


def _same(scalar: object, value: object) -> bool:
    return scalar == value and isinstance(scalar, bool) == isinstance(value, bool)  # True == 1 in Python, not in JSON


def _number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _matches(pattern: str, text: str) -> bool:
    # Patterns are for names and sizes. In a million characters, a repeated group would keep a few hundred bytes for each.
    return len(text) <= _MAX_MATCH_LENGTH and bool(re.search(pattern, text))


FORMATS: Mapping[str, Callable[[str], bool]] = {
    "gpushare-quantity": lambda text: parse_quantity(text) is not None,
    "gpushare-duration": lambda text: parse_duration(text) is not None,
    "gpushare-share": lambda text: parse_share(text) is not None,
    "gpushare-cap": lambda text: text in ("even", "none") or parse_quantity(text) is not None,
    "gpushare-unquoted": lambda text: text == "" or read(f"text: {text}\n".encode(), "").data == {"text": text},
    "gpushare-notice": lambda text: text == "none" or parse_duration(text) is not None,
}
"""Checks of text that a pattern cannot express: numbers of bytes that fit into 63 bits, durations in whole seconds, text that a
template may print without quotes.

Editors ignore these names."""

KEYWORDS: Mapping[str, Callable[..., bool]] = {
    "type": lambda argument, value, *_: any(_is(one, value) for one in ([argument] if isinstance(argument, str) else argument)),
    "const": lambda argument, value, *_: _same(argument, value),
    "enum": lambda argument, value, *_: any(_same(word, value) for word in argument),
    "pattern": lambda argument, value, *_: not isinstance(value, str) or _matches(argument, value),
    "format": lambda argument, value, *_: not isinstance(value, str) or argument not in FORMATS or FORMATS[argument](value),
    "minimum": lambda argument, value, *_: not _number(value) or value >= argument,
    "maximum": lambda argument, value, *_: not _number(value) or value <= argument,
    "minLength": lambda argument, value, *_: not isinstance(value, str) or len(value) >= argument,
    "maxLength": lambda argument, value, *_: not isinstance(value, str) or len(value) <= argument,
    "minItems": lambda argument, value, *_: not isinstance(value, list) or len(value) >= argument,
    "maxItems": lambda argument, value, *_: not isinstance(value, list) or len(value) <= argument,
    "uniqueItems": _unique,
    "minProperties": lambda argument, value, *_: not isinstance(value, dict) or len(value) >= argument,
    "maxProperties": lambda argument, value, *_: not isinstance(value, dict) or len(value) <= argument,
    "required": lambda argument, value, *_: not isinstance(value, dict) or all(key in value for key in argument),
    "properties": _properties,
    "additionalProperties": _additional,
    "propertyNames": lambda part, value, _, root: not isinstance(value, dict) or all(_holds(part, key, root) for key in value),
    "items": lambda part, value, _, root: not isinstance(value, list) or all(_holds(part, item, root) for item in value),
    "allOf": lambda argument, value, _, root: all(_holds(part, value, root) for part in argument),
    "anyOf": lambda argument, value, _, root: any(_holds(part, value, root) for part in argument),
    "oneOf": lambda argument, value, _, root: sum(_holds(part, value, root) for part in argument) == 1,
    "not": lambda argument, value, _, root: not _holds(argument, value, root),
    "if": lambda argument, value, schema, root: not _holds(argument, value, root) or _holds(schema["then"], value, root),
}
"""Every keyword that validates, as (its argument, the value, the enclosing schema, the whole schema) → whether it is met."""
