"""A struct does what a keyword-only dataclass does."""

import json
from enum import Enum
from functools import cached_property

import pytest

from gpushare_node.contract.struct import Struct, content_of, field, replace


class Point(Struct):
    """A point."""

    x: int
    y: int = 0
    note: str = field(default="", compare=False)

    @cached_property
    def text(self) -> str:
        return f"{self.x},{self.y}"


class Pixel(Point):
    """A point with a colour."""

    colour: str = "black"


class Nothing(Struct):
    """No fields."""


class Empty(Struct):
    """No fields either."""


class Part(Struct, frozen=False):
    """Something that changes."""

    seen: list[int] = field(default_factory=list)
    count: int = 0

    def __post_init__(self) -> None:
        self.total = sum(self.seen)


def test_fields_are_keyword_arguments_with_defaults() -> None:
    assert (Point(x=1).x, Point(x=1).y, Point(x=1).note) == (1, 0, "")
    assert repr(Pixel(x=1, note="n")) == "Pixel(x=1, y=0, note='n', colour='black')"


@pytest.mark.parametrize("values", [{}, {"y": 1}, {"x": 1, "z": 2}])
def test_missing_and_unknown_fields_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point requires x, y, note"):
        Point(**values)  # type: ignore[arg-type]


def test_a_default_that_can_change_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Shared\.seen: .* default_factory"):

        class Shared(Struct):
            seen: list[int] = []  # noqa: RUF012


def test_only_structs_have_a_form_in_json() -> None:
    class Colour(Enum):
        RED = 1

    assert json.loads(json.dumps({"at": Point(x=1)}, default=content_of)) == {"at": {"x": 1, "y": 0, "note": ""}}
    with pytest.raises(TypeError, match="Colour cannot be written as JSON"):
        json.dumps(Colour.RED, default=content_of)


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]


def test_struct_is_immutable() -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match=r"Point\.x"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    assert point == Point(x=1)


def test_structs_are_equal_and_hash_by_class_and_content() -> None:
    assert Point(x=1) == Point(x=1, y=0, note="does not count")
    assert len({Point(x=1), Point(x=1, note="does not count"), Point(x=2), Pixel(x=1), Nothing(), Nothing(), Empty()}) == 5
    assert Point(x=1) != (1, 0, "")


def test_a_cached_property_is_no_field() -> None:
    one, other = Point(x=1), Point(x=1)
    assert one.text == "1,0"
    assert {one: "found"}[other] == "found"
    assert "text" not in content_of(one)
    assert replace(one, y=2).text == "1,2"


def test_replace_changes_only_the_given_fields() -> None:
    assert replace(Pixel(x=1, y=2), x=5) == Pixel(x=5, y=2)
    with pytest.raises(TypeError):
        replace(Pixel(x=1), z=1)


def test_a_part_changes_has_lists_of_its_own_and_no_hash() -> None:
    one, other = Part(seen=[1, 2]), Part()
    other.seen.append(7)
    other.count = 3
    del other.count
    assert (one.total, other.total, Part().seen) == (3, 0, [])
    assert Part() == Part()
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)
