"""JSON documents of the commands: from one description come the document and its JSON Schema. Pure.

A Shape is what a value is in JSON: how it is written, and its schema. `make docs` writes the schemas of `Document`s to
`compiler/gpushare/schemas`.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import attrgetter
from types import UnionType
from typing import Any, Generic, NamedTuple, TypeVar, get_args, get_origin

from gpushare_node.contract.struct import Struct

T = TypeVar("T")

_WIDTH = 128
_ATTRIBUTE = re.compile(r"(?<=[a-z0-9])(?=[A-Z][a-z])")


class Shape(Generic[T], Struct):
    """What values of `T` are in JSON. `schema` may contain other shapes; one with a `name` is a definition of its own."""

    schema: Mapping[str, Any]
    write: Callable[[T], Any]
    name: str = ""


def _same(value: Any) -> Any:
    return value


TEXT: Shape[str] = Shape(schema={"type": "string"}, write=_same)
INTEGER: Shape[int] = Shape(schema={"type": "integer"}, write=_same)
COUNT: Shape[int] = Shape(schema={"type": "integer", "minimum": 0}, write=_same)
POSITIVE: Shape[int] = Shape(schema={"type": "integer", "minimum": 1}, write=_same)
NUMBER: Shape[float] = Shape(schema={"type": "number"}, write=_same)
MONEY: Shape[float] = Shape(schema={"type": "number", "minimum": 0}, write=_same)
ROUNDED: Shape[float] = Shape(schema=NUMBER.schema, write=lambda value: round(value, 6))
OBJECT: Shape[Mapping[str, Any]] = Shape(schema={"type": "object"}, write=_same)
FLAG: Shape[bool] = Shape(schema={"type": "boolean"}, write=_same)


def words(values: Iterable[str]) -> Shape[str]:
    """Return the shape of a text that is one of these."""
    return Shape(schema={"enum": list(values)}, write=str)


def optional(shape: Shape[T]) -> Shape[T | None]:
    """Return the shape of a value that may be null: written for None, and for empty text."""
    schema = {**shape.schema}
    if shape.name:
        schema = {"oneOf": [{"type": "null"}, shape]}
    elif "enum" in schema:
        schema["enum"] = [*schema["enum"], None]
    else:
        schema["type"] = [schema["type"], "null"]
    return Shape(schema=schema, write=lambda value: None if value is None or value == "" else shape.write(value))


def array(shape: Shape[T]) -> Shape[Iterable[T]]:
    """Return the shape of a list."""
    return Shape(schema={"type": "array", "items": shape}, write=lambda values: [shape.write(value) for value in values])


def by_name(shape: Shape[T], name: str = "", text: str = "") -> Shape[Mapping[str, T]]:
    """Return the shape of an object whose names are data; with a name of its own the schema has it once, as a definition."""
    return Shape(
        schema={**_described(text), "type": "object", "additionalProperties": shape},
        write=lambda values: {key: shape.write(value) for key, value in values.items()},
        name=name,
    )


def _described(text: str) -> dict[str, str]:
    return {"description": text} if text else {}


class Member(NamedTuple, Generic[T]):
    """A member of an object: its name, what it is, and its value. `text` describes it in the schema.

    Without `value` it is the attribute of the same name, as Python writes it: `perNode` is `per_node`. It is always there, null
    if its value is not known; with `is_rare` it is left out where the value is None.
    """

    name: str
    shape: Shape[Any]
    value: Callable[[T], Any] | None = None
    text: str = ""
    is_rare: bool = False


def fields(of: type, *same: str, **renamed: str) -> Iterator[Member[Any]]:
    """Yield members that are fields or properties of the struct `of`: of the same name, or as `nameInTheDocument="field"`.

    Their shapes are those of the annotations: texts, numbers, truth values, and tuples and mappings of these; TypeError for
    others.
    """
    hints = {name: hint for each in reversed(of.__mro__) for name, hint in vars(each).get("__annotations__", {}).items()}
    for name, field in {**dict(zip(same, same, strict=True)), **renamed}.items():
        hint = hints[field] if field in hints else vars(of)[field].fget.__annotations__["return"]
        yield Member(name, _shape_of(hint), attrgetter(field))


_PLAIN: Mapping[type, Shape[Any]] = {str: TEXT, int: INTEGER, float: NUMBER, bool: FLAG}


def _shape_of(hint: Any) -> Shape[Any]:
    if hint in _PLAIN:
        return _PLAIN[hint]
    inner = get_args(hint)
    if isinstance(hint, UnionType) and len(inner) == 2 and inner[1] is type(None):
        return optional(_shape_of(inner[0]))
    if get_origin(hint) is tuple and inner[1:] == (...,):
        return array(_shape_of(inner[0]))
    if get_origin(hint) is Mapping and inner[0] is str:
        return by_name(_shape_of(inner[1]))
    raise TypeError(f"{hint} has no shape: write a Member")


def record(name: str, *members: Member[T], text: str = "") -> Shape[T]:
    """Return the shape of an object with these members. With a name the schema has it once, as a definition."""
    getters = [(one, one.value or attrgetter(_ATTRIBUTE.sub("_", one.name).lower())) for one in members]

    def write(value: T) -> dict[str, Any]:
        found = ((one, get(value)) for one, get in getters)
        return {one.name: one.shape.write(each) for one, each in found if not (one.is_rare and each is None)}

    schema = {
        **_described(text),
        "type": "object",
        "additionalProperties": False,
        "required": [one.name for one in members if not one.is_rare],
        "properties": {one.name: _Described(one.shape, one.text) for one in members},
    }
    return Shape(schema=schema, write=write, name=name)


class _Described(NamedTuple):
    """A shape with the description of the member that has it."""

    shape: Shape[Any]
    text: str


class Document(Generic[T], Struct):
    """A document of a command: `kind` as in the document, `name` as in its schema's file, and what it says of a `T`."""

    name: str
    kind: str
    text: str
    members: tuple[Member[T], ...]

    def write(self, value: T) -> dict[str, Any]:
        """Return the document."""
        return {"apiVersion": "gpushare.dev/v1", "kind": self.kind, **record("", *self.members).write(value)}

    def schema(self) -> str:
        """Return its JSON Schema, draft-07, as text."""
        definitions: dict[str, Any] = {}
        own = _expanded(record("", *self.members).schema, definitions)
        constants = {"apiVersion": "gpushare.dev/v1", "kind": self.kind}
        schema = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": f"https://gpushare.dev/schemas/{self.name}.v1.json",
            "title": self.kind,
            "description": self.text,
            **own,
            "required": [*constants, *own["required"]],
            "properties": {**{name: {"const": value} for name, value in constants.items()}, **own["properties"]},
        }
        return "".join(_lines({**schema, "definitions": definitions} if definitions else schema, "")) + "\n"


def _expanded(value: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema without shapes: those with a name are references to `definitions`, which gets them."""
    if isinstance(value, _Described):
        return _described(value.text) | _expanded(value.shape, definitions)
    if isinstance(value, Shape):
        if not value.name:
            return _expanded(value.schema, definitions)
        if value.name not in definitions:
            definitions[value.name] = {}
            definitions[value.name] = _expanded(value.schema, definitions)
        return {"$ref": f"#/definitions/{value.name}"}
    if isinstance(value, Mapping):
        return {key: _expanded(each, definitions) for key, each in value.items()}
    return [_expanded(each, definitions) for each in value] if isinstance(value, list) else value


def _lines(value: Any, indent: str) -> Iterator[str]:
    """Yield JSON in lines: what fits into one is one."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(flat) < _WIDTH - 40 or not isinstance(value, dict | list):
        yield flat
        return
    pairs = value.items() if isinstance(value, dict) else ((None, one) for one in value)
    first, last = "{}" if isinstance(value, dict) else "[]"
    yield first
    for number, (key, one) in enumerate(pairs):
        yield ("," if number else "") + f"\n{indent}  " + ("" if key is None else f"{json.dumps(key)}: ")
        yield from _lines(one, indent + "  ")
    yield f"\n{indent}{last}"
