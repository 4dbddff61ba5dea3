"""A record does what a frozen keyword-only dataclass does."""

from functools import cached_property

import pytest

from gpushare.core.record import Record, replace


class Point(Record):
    """A point."""

    x: int
    y: int = 0

    @property
    def sum(self) -> int:
        return self.x + self.y

    @cached_property
    def text(self) -> str:
        return f"{self.x},{self.y}"


class Pixel(Point):
    """A point with a colour."""

    colour: str = "black"


class Nothing(Record):
    """No fields."""


class Empty(Record):
    """No fields either."""


def test_fields_are_keyword_arguments_with_defaults() -> None:
    assert (Point(x=1).x, Point(x=1).y, Point(x=1, y=2).sum) == (1, 0, 3)
    assert Pixel(x=1).colour == "black"


@pytest.mark.parametrize("values", [{}, {"y": 1}, {"x": 1, "z": 2}, {"x": 1, "sum": 2}])
def test_missing_and_unknown_fields_are_refused(values: dict[str, int]) -> None:
    with pytest.raises(TypeError, match="Point wants x, y"):
        Point(**values)


def test_positional_arguments_are_refused() -> None:
    with pytest.raises(TypeError):
        Point(1)  # type: ignore[call-arg]


def test_record_is_immutable() -> None:
    point = Point(x=1)
    with pytest.raises(AttributeError, match=r"Point\.x"):
        point.x = 2  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del point.x
    assert point == Point(x=1)


def test_records_are_equal_by_class_and_content() -> None:
    assert Point(x=1) == Point(x=1, y=0)
    assert Point(x=1) != Point(x=2)
    assert Point(x=1) != Pixel(x=1)
    assert Nothing() != Empty()
    assert Point(x=1) != (1, 0)


def test_equal_records_hash_alike_also_after_a_cached_property() -> None:
    one, other = Point(x=1), Point(x=1)
    assert one.text == "1,0"
    assert one == other
    assert {one: "found"}[other] == "found"
    assert len({Nothing(), Empty()}) == 2


def test_replace_changes_only_the_given_fields() -> None:
    pixel = Pixel(x=1, y=2)
    assert pixel.text == "1,2"
    assert replace(pixel, x=5) == Pixel(x=5, y=2)
    with pytest.raises(TypeError):
        replace(pixel, z=1)


def test_repr_is_the_constructor_call() -> None:
    assert repr(Pixel(x=1)) == "Pixel(x=1, y=0, colour='black')"
