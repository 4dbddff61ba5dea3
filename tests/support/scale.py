"""How much of a property is tried: a part of it in `make test`, all of it with `--long`, as the suite `long` runs it."""

import ast
import functools
from collections.abc import Sequence
from pathlib import Path
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


def part(items: Sequence[T], every: int) -> list[T]:
    """Cases that prove something each for itself: each of so many in `make test`, and only the others with `--long`."""
    return [item for number, item in enumerate(items) if (number % every == 0) != is_long]


@functools.cache
def users(file: Path) -> frozenset[str]:
    """What a file of tests defines that is another with `--long`: it names this module, or something else there that does."""
    named: dict[str, set[str]] = {}
    for part in ast.parse(file.read_text(encoding="utf-8")).body:
        words = [node for node in ast.walk(part) if isinstance(node, ast.Name)]
        own = [word.id for word in words if isinstance(word.ctx, ast.Store)]
        if isinstance(part, ast.FunctionDef | ast.ClassDef):
            own = [part.name]
        fixtures = {node.arg for node in ast.walk(part) if isinstance(node, ast.arg)}
        named.update(dict.fromkeys(own, {word.id for word in words} | fixtures))
    found = {"scale"}
    while more := {name for name, words in named.items() if name not in found and not found.isdisjoint(words)}:
        found |= more
    return frozenset(found)
