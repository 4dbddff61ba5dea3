"""Field: one value of a parsed document together with its path; it rejects everything that the reader does not expect.

Owns how a shape is checked and the text of an error. Does not know YAML or policies. The rules are JSON Schema's, draft 7: a
number without a fraction is an integer, `true` is not a number. Patterns must match the whole text: a final newline is refused.
"""

import re
from collections.abc import Callable
from enum import StrEnum
from typing import Any, TypeVar

from gpushare_node.contract.struct import Struct, field

_T = TypeVar("_T")
_Word = TypeVar("_Word", bound=StrEnum)

_PLAIN_KEY = r"[A-Za-z_][A-Za-z0-9_]*"
_MAX_SHOWN = 60


Path = tuple[Any, ...]
"""The keys and indexes that lead to a value from the whole document."""


class PolicyError(ValueError):
    """A document that is not valid. `steps` lead to the value that is refused, `path` is their text, `.` the whole document."""

    def __init__(self, steps: Path, message: str) -> None:
        self.steps = steps
        self.path = spelled(steps)
        self.message = message
        super().__init__(f"{self.path}: {message}")


class Field(Struct):
    """One value of a document. Every method returns the value in the expected type, or raises PolicyError with this path.

    `ignored` gets the paths of unknown fields in the whole document; None: an unknown field is an error.
    """

    value: Any
    path: Path = ()
    ignored: list[str] | None = field(default=None, compare=False)

    def fields(self, *names: str, optional: tuple[str, ...] = ()) -> dict[str, "Field"]:
        """Return the fields of a mapping with these keys; an optional key that is absent counts as null."""
        found = self._mapping()
        known = (*names, *optional)
        for key in found:
            if key in known:
                continue
            if self.ignored is None:
                raise PolicyError((*self.path, key), f"is unknown; known fields are {', '.join(known)}")
            self.ignored.append(spelled((*self.path, key)))
        for name in names:
            if name not in found:
                raise PolicyError((*self.path, name), "is missing")
        return {name: self._child(found.get(name), name) for name in known}

    def entries(self, *, at_least: int = 0) -> tuple[tuple[str, "Field"], ...]:
        """Return the entries of a mapping with any text as keys, as pairs in the document's order."""
        found = self._mapping()
        if len(found) < at_least:
            raise self.refusal(f"must have {at_least} or more entries")
        for key in found:
            if not isinstance(key, str):
                raise PolicyError((*self.path, key), "must have text for its key")
        return tuple((key, self._child(value, key)) for key, value in found.items())

    def items(self, *, at_least: int = 0) -> tuple["Field", ...]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            raise self.refusal("must be a list")
        if len(self.value) < at_least:
            raise self.refusal(f"must have {at_least} or more items")
        return tuple(self._child(item, number) for number, item in enumerate(self.value))

    def text(self, pattern: str | None = None, *, at_least: int = 0, at_most: int | None = None) -> str:
        """Return text that the pattern, if any, matches as a whole; lengths are in characters."""
        if not isinstance(self.value, str):
            raise self.refusal("must be text")
        if pattern is not None and not re.fullmatch(pattern, self.value):
            raise self.refusal(f"must match {pattern}")
        if len(self.value) < at_least:
            raise self.refusal("must not be empty")
        if at_most is not None and len(self.value) > at_most:
            raise self.refusal(f"must have at most {at_most} characters")
        return self.value

    def integer(self, *, at_least: int, at_most: int | None = None) -> int:
        """Return an integer; `4.0` is one."""
        value = self.value
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.refusal("must be a whole number")
        if value < at_least:
            raise self.refusal(f"must be {at_least} or more")
        if at_most is not None and value > at_most:
            raise self.refusal(f"must be at most {at_most}")
        return value

    def boolean(self) -> bool:
        """Return a boolean."""
        if not isinstance(self.value, bool):
            raise self.refusal("must be true or false")
        return self.value

    def enum(self, words: type[_Word]) -> _Word:
        """Return the member of the enum with this value."""
        for word in words:
            if isinstance(self.value, str) and self.value == word.value:
                return word
        raise self.refusal(f"must be one of {', '.join(word.value for word in words)}")

    def optional(self, read: Callable[["Field"], _T]) -> _T | None:
        """Return the result of `read` for the value; None if the value is null."""
        return None if self.value is None else read(self)

    def refusal(self, message: str) -> PolicyError:
        """Return the error that states what this value must be, and what it is."""
        return PolicyError(self.path, f"{message}, not {_shown(self.value)}")

    def _child(self, value: object, step: object) -> "Field":
        return Field(value=value, path=(*self.path, step), ignored=self.ignored)

    def _mapping(self) -> dict[Any, Any]:
        if not isinstance(self.value, dict):
            raise self.refusal("must be a mapping")
        return self.value


def spelled(steps: Path) -> str:
    """Return a path as text, such as `spec.gpus[0].mig`; `.` for the whole document."""
    plain = (isinstance(step, str) and re.fullmatch(_PLAIN_KEY, step) for step in steps)
    texts = (f".{step}" if is_plain else f"[{_shown(step)}]" for step, is_plain in zip(steps, plain, strict=True))
    return "".join(texts).removeprefix(".") or "."


def _shown(value: object) -> str:
    """Return a value as a message shows it: never a whole structure, which may be large or contain itself."""
    match value:
        case None:
            return "null"
        case bool():
            return str(value).lower()
        case dict():
            return f"a mapping of {len(value)} entries"
        case list():
            return f"a list of {len(value)} items"
        case str():
            return repr(value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}…")
        case int() if abs(value) >= 10**_MAX_SHOWN:
            return "a number of this size"
        case int() | float():
            return str(value)
        case _:
            return f"a {type(value).__name__}"
