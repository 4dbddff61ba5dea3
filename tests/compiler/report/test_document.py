"""A document and its schema come from one description: what is written is what the schema says."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from gpushare.reading import schema
from gpushare.report.document import COUNT, FLAG, TEXT, Document, Member, Shape, array, by_name, fields, optional, record, words
from gpushare_node.contract.struct import NOTHING, Struct


class Disk(Struct):
    """A record of every plain type."""

    name: str
    size: int | None = None
    load: float = 0.0
    tags: tuple[str, ...] = ()
    parts: Mapping[str, int] = NOTHING
    owner: object = None

    @property
    def is_large(self) -> bool:
        """Whether it is large."""
        return (self.size or 0) > 10


DISK: Shape[Disk] = record(
    "disk",
    *fields(Disk, "name", "size", "load", "tags", "parts", large="is_large"),
    Member("kind", optional(words(["ssd"])), lambda one: "ssd" if one.size else "", "Of what it is made."),
    Member("note", TEXT, lambda one: one.name if one.size == 1 else None, is_rare=True),
    text="A disk.",
)
DOCUMENT: Document[list[Disk]] = Document(
    name="disks",
    kind="Disks",
    text="All disks.",
    members=(
        Member("disks", array(DISK), lambda disks: disks),
        Member("first", optional(DISK), lambda disks: next(iter(disks), None)),
        Member("byName", by_name(COUNT), lambda disks: {one.name: one.size or 0 for one in disks}),
        Member("any", FLAG, bool),
    ),
)


def test_a_document_has_every_member_in_order_and_conforms_to_its_schema() -> None:
    made = DOCUMENT.write([Disk(name="a", size=11, tags=("x",), parts={"p": 1}), Disk(name="b", size=1), Disk(name="c")])
    assert list(made) == ["apiVersion", "kind", "disks", "first", "byName", "any"]
    assert made["disks"][0] == {
        "name": "a",
        "size": 11,
        "load": 0.0,
        "tags": ["x"],
        "parts": {"p": 1},
        "large": True,
        "kind": "ssd",
    }
    assert [one.get("note") for one in made["disks"]] == [None, "b", None]
    assert made["disks"][2]["kind"] is None
    described = json.loads(DOCUMENT.schema())
    assert schema.accepts(described, made)
    assert schema.accepts(described, DOCUMENT.write([]))
    assert described["definitions"]["disk"]["properties"]["kind"] == {
        "description": "Of what it is made.",
        "enum": ["ssd", None],
    }


@pytest.mark.parametrize(
    "wrong",
    [{"more": 1}, {"any": 1}, {"first": {}}, {"byName": {"a": -1}}, {"disks": [None]}, {"kind": "Other"}, {"apiVersion": "v2"}],
    ids=str,
)
def test_a_schema_refuses_what_is_not_described(wrong: dict[str, Any]) -> None:
    assert not schema.accepts(json.loads(DOCUMENT.schema()), {**DOCUMENT.write([Disk(name="a")]), **wrong})


def test_every_member_that_is_not_rare_is_required() -> None:
    made = DOCUMENT.write([Disk(name="a")])
    for name in made:
        assert not schema.accepts(json.loads(DOCUMENT.schema()), {key: value for key, value in made.items() if key != name})


def test_a_field_of_another_type_needs_a_member() -> None:
    with pytest.raises(TypeError, match="write a Member"):
        list(fields(Disk, "owner"))
