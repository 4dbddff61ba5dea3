"""Record: the base class of the compiler's values; frozen, built by keyword, equal by content. Imports nothing of ours.

It is equivalent to `@dataclass(frozen=True, kw_only=True)`, and type checkers treat it as such. The difference is the
cost of a class: a dataclass generates and compiles source text for each of its methods, 0.4 ms per class, and with
seventy classes that was a quarter of a cold `compile` (docs/decisions.md).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar, dataclass_transform

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The empty mapping, as an immutable default."""


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Record:
    """A frozen value. Annotations of the class are its fields, in order; a class attribute is a field's default."""

    _fields: ClassVar[tuple[str, ...]] = ()
    _names: ClassVar[frozenset[str]] = frozenset()
    _defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls) -> None:
        own = tuple(name for name in cls.__annotations__ if name not in cls._fields)
        cls._fields = (*cls._fields, *own)
        cls._names = frozenset(cls._fields)
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}

    def __init__(self, **values: Any) -> None:
        own = self.__dict__
        own.update(self._defaults)
        own.update(values)
        if own.keys() != self._names:
            raise TypeError(f"{type(self).__name__} wants {', '.join(self._fields)}; given were {', '.join(values)}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a record does not change; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a record does not change")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(other) is type(self) and other._values() == self._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._fields)})"

    def _values(self) -> tuple[Any, ...]:
        """Return the fields only: a cached property may have stored its result beside them."""
        return tuple([self.__dict__[name] for name in self._fields])


_R = TypeVar("_R", bound=Record)


def fields(record: Record) -> dict[str, Any]:
    """Return the record's fields by name, in order."""
    return {name: record.__dict__[name] for name in record._fields}


def replace(record: _R, **changes: Any) -> _R:
    """Return a copy of the record with some fields changed."""
    return type(record)(**{**fields(record), **changes})
