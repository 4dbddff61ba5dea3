"""How much of a property is tried: a part of it in `make test`, all of it with `--long`, as the suite `long` runs it."""

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

is_long = False
"""Set by tests/conftest.py before any test is imported."""


def examples(number: int) -> int:
    """So many generated examples, or a fifteenth of them."""
    return number if is_long else max(20, number // 15)


def some(items: Sequence[T], every: int) -> list[T]:
    """All of them, or each of so many, the first included."""
    return list(items) if is_long else list(items)[::every]
