"""Whether a document conforms to a JSON Schema, and where it does not.

Owns the loading of schemas and both ways to validate: `accepts`, a small interpreter of exactly the keywords that our schemas
use, and jsonschema, which finds what is wrong. A document without violations needs no jsonschema: that saves each call the
60 ms of its import, half of a cold compile, and one of 300 pools 300 ms. A test checks that the two give the same results.
Wording is in `schema_findings`.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import Any, TypeGuard

from gpushare.core import resources
from gpushare.core.diagnostics import Finding, Path
from gpushare.core.units import parse_duration, parse_quantity, parse_share
from gpushare.reading.schema_findings import MAX_RAW, SchemaViolation, findings
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
    schema = load("intent.v1")
    return (
        []
        if accepts(schema, source.data)
        else findings(_violations(source.data, schema), source.data, schema, (), source.written)
    )


def violations(document: object, wanted: str | Schema, base: Path) -> list[Finding]:
    """Return the violations of a schema, or a shipped schema's name, in the part of a document at path `base`."""
    schema = load(wanted) if isinstance(wanted, str) else wanted
    return [] if accepts(schema, document) else findings(_violations(document, schema), document, schema, base, lambda _: "")


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


def _type(argument: Any, value: Any, *_: Schema) -> bool:
    return _is(argument, value) if isinstance(argument, str) else any(_is(name, value) for name in argument)


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


def _names(argument: Any, value: Any, _: Schema, root: Schema) -> bool:
    return not isinstance(value, dict) or all(_holds(argument, key, root) for key in value)


def _items(argument: Any, value: Any, _: Schema, root: Schema) -> bool:
    return not isinstance(value, list) or all(_holds(argument, item, root) for item in value)


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
    "type": _type,
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
    "propertyNames": _names,
    "items": _items,
    "allOf": lambda argument, value, _, root: all(_holds(part, value, root) for part in argument),
    "anyOf": lambda argument, value, _, root: any(_holds(part, value, root) for part in argument),
    "oneOf": lambda argument, value, _, root: sum(_holds(part, value, root) for part in argument) == 1,
    "not": lambda argument, value, _, root: not _holds(argument, value, root),
    "if": lambda argument, value, schema, root: not _holds(argument, value, root) or _holds(schema["then"], value, root),
}
"""Every keyword that validates, as (its argument, the value, the enclosing schema, the whole schema) → whether it is met."""


def _violations(document: object, schema: Schema) -> Iterator[SchemaViolation]:
    """Yield the violations that jsonschema finds in the document, at most MAX_RAW."""
    # Imported here and not above: see the module's docstring.
    from jsonschema import Draft7Validator, FormatChecker, ValidationError, validators  # noqa: PLC0415 - as above

    def only_failing(keyword: str) -> Callable[..., Iterator[Any]]:
        """Return jsonschema's keyword, called only if ours fails: the valid parts of a large document then cost little."""
        original = Draft7Validator.VALIDATORS[keyword]

        def check(validator: Any, argument: Any, instance: Any, around: Any) -> Iterator[Any]:
            if KEYWORDS[keyword](argument, instance, around, schema):
                return
            if keyword == "additionalProperties" and argument:
                known = around.get("properties", {})
                for key in (key for key in instance if key not in known):  # in the text's order: jsonschema uses a set
                    yield from validator.descend(instance[key], argument, path=key)
            elif keyword in ("uniqueItems", "pattern"):
                yield ValidationError(keyword)  # checking it again would take long, or give another result
            else:
                yield from original(validator, argument, instance, around)

        return check

    formats = FormatChecker(formats=())
    for name, check_text in FORMATS.items():
        formats.checks(name)(lambda text, check_text=check_text: not isinstance(text, str) or check_text(text))
    validator: Any = validators.extend(  # type: ignore[no-untyped-call]  # jsonschema has no annotation here
        Draft7Validator, {keyword: only_failing(keyword) for keyword in KEYWORDS}
    )
    for error in islice(validator(schema, format_checker=formats).iter_errors(document), MAX_RAW):
        yield SchemaViolation(
            keyword=str(error.validator),
            argument=error.validator_value,
            value=error.instance,
            schema=error.schema,
            path=tuple(error.absolute_path),
            message=error.message[:200],
        )
