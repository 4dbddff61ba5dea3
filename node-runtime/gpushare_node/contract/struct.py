"""Struct: the base class of all values and mutable parts; created by keyword, equal by content. Imports nothing of ours.

It behaves like `@dataclass(kw_only=True)`, frozen unless `frozen=False`, and type checkers treat it as such. The difference
is the cost of a class: a dataclass generates and compiles source text for each of its methods, which was a quarter of a cold
`compile` and half of the start-up time on a node (docs/decisions.md).
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

NOTHING: Mapping[str, Any] = MappingProxyType({})
"""The empty mapping, as an immutable default."""
_REQUIRED: Any = object()


class _Field(NamedTuple):
    default: Any
    default_factory: Callable[[], Any] | None = None
    compare: bool = True


def field(*, default: Any = _REQUIRED, default_factory: Callable[[], Any] | None = None, compare: bool = True) -> Any:
    """Declare a field whose default is created for each struct, or that is ignored when structs are compared."""
    return _Field(default, default_factory, compare)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Struct:
    """A value; with `frozen=False` a mutable part. The annotations are its fields, in order; class attributes are defaults."""

    _fields: ClassVar[Mapping[str, _Field]] = {}
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _factories: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    _content: ClassVar[Any] = len
    """Returns the values that make two structs of a class equal, from their fields by name."""

    def __init_subclass__(cls, *, frozen: bool = True) -> None:
        given = {name: cls.__dict__.get(name, _REQUIRED) for name in cls.__annotations__}
        own = {name: one if isinstance(one, _Field) else _Field(one) for name, one in given.items()}
        # A dataclass refuses this too: all structs would share one list as their default.
        shared = [name for name, one in own.items() if isinstance(one.default, (list, dict, set))]
        if shared:
            raise TypeError(f"{cls.__name__}.{shared[0]}: a default that can change needs a default_factory")
        cls._fields = {**cls._fields, **own}
        cls._defaults = {name: one.default for name, one in cls._fields.items() if one.default is not _REQUIRED}
        cls._factories = {name: one.default_factory for name, one in cls._fields.items() if one.default_factory}
        compared = [name for name, one in cls._fields.items() if one.compare]
        cls._content = itemgetter(*compared) if compared else len
        if not frozen:
            cls.__setattr__ = object.__setattr__  # type: ignore[assignment, method-assign]
            cls.__delattr__ = object.__delattr__  # type: ignore[method-assign]
            cls.__hash__ = None  # type: ignore[assignment]

    def __init__(self, **values: Any) -> None:
        if values.keys() != self._fields.keys():
            made = {name: make() for name, make in self._factories.items() if name not in values}
            whole = {**self._defaults, **made, **values}
            if whole.keys() != self._fields.keys():
                raise TypeError(f"{type(self).__name__} requires {', '.join(self._fields)}; got {', '.join(values)}")
            values = whole
        # The arguments become the fields without a copy: a copy, or setting one after another, would cost as much again.
        object.__setattr__(self, "__dict__", values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """Hook for a part that derives something from its fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a struct is immutable; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a struct does not change")

    def __eq__(self, other: object) -> bool:
        return self._content(self.__dict__) == self._content(other.__dict__) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content(self.__dict__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._fields)})"


_S = TypeVar("_S", bound=Struct)


def content_of(value: object) -> dict[str, Any]:
    """Return the fields of a struct by name, in order, also for `json.dumps(default=)`. TypeError for anything else."""
    if not isinstance(value, Struct):
        raise TypeError(f"{type(value).__name__} cannot be written as JSON")
    return {name: value.__dict__[name] for name in value._fields}


def replace(struct: _S, **changes: Any) -> _S:
    """Return a copy of the struct with some fields changed."""
    return type(struct)(**{name: struct.__dict__[name] for name in struct._fields} | changes)
