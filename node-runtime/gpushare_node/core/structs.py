"""Struct: what the values and parts of the node runtime are; made by keyword, equal by content. Imports nothing of ours.

It says what `@dataclass(kw_only=True)` says, frozen unless told otherwise, and type checkers read it as such. The difference
is the price of a class: a dataclass writes and compiles source text for each of its methods, and with a hundred classes that
was half of a node's start (docs/decisions.md).
"""

from collections.abc import Callable, Mapping
from operator import itemgetter
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

_REQUIRED: Any = object()


class _Field(NamedTuple):
    default: Any
    default_factory: Callable[[], Any] | None = None
    compare: bool = True


def field(*, default: Any = _REQUIRED, default_factory: Callable[[], Any] | None = None, compare: bool = True) -> Any:
    """A field whose default is made for each struct, or that does not count when structs are compared."""
    return _Field(default, default_factory, compare)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(field,))
class Struct:
    """A value; a part with `frozen=False`. Annotations of the class are its fields, in order; attributes are their defaults."""

    _fields: ClassVar[Mapping[str, _Field]] = {}
    _defaults: ClassVar[Mapping[str, Any]] = {}
    _factories: ClassVar[Mapping[str, Callable[[], Any]]] = {}
    _content: ClassVar[Any] = len
    """What makes two structs of a class equal, out of their fields by name."""

    def __init_subclass__(cls, *, frozen: bool = True) -> None:
        given = {name: cls.__dict__.get(name, _REQUIRED) for name in cls.__annotations__}
        own = {name: one if isinstance(one, _Field) else _Field(one) for name, one in given.items()}
        # As a dataclass refuses: one list would be the default of every struct.
        shared = [name for name, one in own.items() if one.default.__class__.__hash__ is None]
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
                raise TypeError(f"{type(self).__name__} wants {', '.join(self._fields)}; given were {', '.join(values)}")
            values = whole
        # The arguments become the fields as they are: a copy, or setting one after another, would cost as much again.
        object.__setattr__(self, "__dict__", values)
        self.__post_init__()

    def __post_init__(self) -> None:
        """What a part makes of its fields."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a struct does not change; use replace()")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__}.{name}: a struct does not change")

    def __eq__(self, other: object) -> bool:
        return self._content(self.__dict__) == self._content(other.__dict__) if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._content(self.__dict__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={self.__dict__[name]!r}' for name in self._fields)})"


_S = TypeVar("_S", bound=Struct)


def content_of(value: object) -> Mapping[str, Any]:
    """The fields of a struct by name, as `json.dumps(default=)` asks for them. TypeError for anything else."""
    if not isinstance(value, Struct):
        raise TypeError(f"{type(value).__name__} has no form in JSON")
    return {name: value.__dict__[name] for name in value._fields}


def replace(struct: _S, **changes: Any) -> _S:
    """The same struct with some fields changed."""
    return type(struct)(**{name: struct.__dict__[name] for name in struct._fields} | changes)
