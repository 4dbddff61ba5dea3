"""A value of an input together with where it is: Part; and Notes, which collects the findings on parts.

Owns the way from a value back to its file, line and column, whatever contains it, and the record of what was read: reading a
scalar through a Part marks it, and `unread` yields the rest. Knows no kind of object.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from gpushare.core.diagnostics import Finding, Path, Severity, Span
from gpushare.reading.source import Source
from gpushare_node.contract import quantity
from gpushare_node.contract.struct import Struct, replace

MAX_OF_A_CODE = 50
"""How many findings of one code are shown; one more reports that further ones are not."""

PLACEHOLDER_HINT = "give the file as it is applied: after Flux, Helm or envsubst has put the value in its place"
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}|\{\{.*?\}\}|\$\([A-Za-z_]\w*\)|<[A-Z][A-Z0-9_-]+>")

Place = tuple[str, Span | None]
_TRUE, _FALSE = frozenset({"y", "yes", "on", "true"}), frozenset({"n", "no", "off", "false"})


def is_placeholder(text: str) -> bool:
    """Whether a text has a place that a tool fills in later: `${X}`, `{{ x }}`, `$(X)`, `<X>`."""
    return _PLACEHOLDER.search(text) is not None


class Origin(Protocol):
    """Where a document is from."""

    def place(self, path: Path, *, on_key: bool) -> Place:
        """Return the file and the span of the value at the path, or of its key."""

    def pointer(self, path: Path) -> Path:
        """Return the path in the whole document."""


class FromFile(Struct):
    """A document of a file. `before`: how many lines of the file come before those that `source` has."""

    source: Source
    before: int = 0

    def place(self, path: Path, *, on_key: bool) -> Place:
        """Return the position in the file."""
        span = self.source.locate(Finding(code="", message="", path=path, on_key=on_key)).span
        return self.source.file, span and shifted(span, self.before)

    def pointer(self, path: Path) -> Path:
        """Return the path itself."""
        return path


class FromProgram(Struct):
    """An object that a program has parsed: its findings have the given name and no position."""

    name: str

    def place(self, path: Path, *, on_key: bool) -> Place:  # noqa: ARG002 - Origin's signature
        """Return the name."""
        return self.name, None

    def pointer(self, path: Path) -> Path:
        """Return the path itself."""
        return path


def shifted(span: Span, lines: int) -> Span:
    """Return the span that many lines further down."""
    return replace(span, line=span.line + lines, end_line=span.end_line + lines) if lines else span


class Part:
    """One value: `value` is None for null and for what is missing. Missing parts have the position of what is nearest.

    All parts of one object share `seen`, the paths of what was read.
    """

    __slots__ = ("_value", "origin", "path", "seen")

    def __init__(self, value: Any, origin: Origin, path: Path = (), seen: set[Path] | None = None) -> None:
        self._value = value
        self.origin = origin
        self.path = path
        self.seen = set() if seen is None else seen

    @property
    def value(self) -> Any:
        """The value. A scalar counts as read from here on; what a mapping or a list contains does not."""
        if not isinstance(self._value, dict | list):
            self.seen.add(self.path)
        return self._value

    @property
    def whole(self) -> Any:
        """The value with everything that it contains, which counts as read."""
        self.seen.add(self.path)
        return self._value

    def fresh(self) -> "Part":
        """Return the part as the root of an object of its own, of which nothing was read."""
        return Part(self._value, self.origin, self.path)

    def read_like(self, other: "Part") -> None:
        """Count what was read of another object as read of this one, which is like it."""
        depth = len(other.path)
        self.seen.update((*self.path, *path[depth:]) for path in other.seen)

    def unread(self) -> Iterator["Part"]:
        """Yield every value that was not read: scalars that are not null."""
        if self.path in self.seen:
            return
        match self._value:
            case dict():
                for key in self._value:
                    yield from Part(self._value[key], self.origin, (*self.path, key), self.seen).unread()
            case list():
                for entry in self.entries():
                    yield from entry.unread()
            case None:
                return
            case _:
                yield self

    def at(self, *steps: str | int) -> "Part":
        """Return the part at these keys, and places in lists; its value is None if there is none."""
        value = self._value
        for step in steps:
            match value:
                case dict():
                    value = value.get(step)
                case list() if isinstance(step, int) and step < len(value):
                    value = value[step]
                case _:
                    value = None
        return Part(value, self.origin, (*self.path, *steps), self.seen)

    def has(self, key: str) -> bool:
        """Whether the value is a mapping with the key, even if that has no value."""
        return isinstance(self.value, dict) and key in self.value

    def items(self) -> Iterator[tuple[str, "Part"]]:
        """Yield the keys and values of a mapping, sorted by key; nothing for another value."""
        if isinstance(self._value, dict):
            for key in sorted(key for key in self._value if isinstance(key, str)):
                yield key, self.at(key)

    def entries(self) -> Iterator["Part"]:
        """Yield the entries of a list; nothing for another value."""
        if isinstance(self.value, list):
            for number, value in enumerate(self.value):
                yield Part(value, self.origin, (*self.path, number), self.seen)

    @property
    def text(self) -> str:
        """The value if it is text, else empty."""
        return self.value if isinstance(self.value, str) else ""

    @property
    def truth(self) -> bool | None:
        """The value as Kubernetes' YAML reader takes it for a boolean (`yes`, `on`); None if it does not."""
        if isinstance(self.value, bool):
            return self.value
        word = self.text.lower()
        return True if word in _TRUE else False if word in _FALSE else None

    @property
    def count(self) -> int | None:
        """The value if it is a whole number, also one that is written as text; else None."""
        value = self.value
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 31 else None

    @property
    def devices(self) -> int | None:
        """The value if it is a whole number, also as a quantity: the API server answers `2k` for 2000; else None."""
        found = quantity.whole(self.text)
        return self.count if found is None or found >= 1 << 31 else found

    def place(self, *, on_key: bool = False) -> Place:
        """Return the file and the span."""
        return self.origin.place(self.path, on_key=on_key)

    def labels(self) -> "Labels":
        """Return the entries of a mapping that are text; a JSON dump of an API server has no others among labels."""
        return Labels(self)


class Labels(Mapping[str, str]):
    """The labels of an object. One that is looked up counts as read; `unmarked` has them all, and reads none."""

    __slots__ = ("_part", "unmarked")

    def __init__(self, part: Part) -> None:
        pairs = part.value.items() if isinstance(part.value, dict) else ()
        self._part = part
        self.unmarked = {key: value for key, value in pairs if isinstance(key, str) and isinstance(value, str)}

    def __getitem__(self, key: str) -> str:
        value = self.unmarked[key]
        self._part.seen.add((*self._part.path, key))
        return value

    def __contains__(self, key: object) -> bool:
        return key in self.unmarked

    def __iter__(self) -> Iterator[str]:
        return iter(self.unmarked)

    def __len__(self) -> int:
        return len(self.unmarked)


class Notes:
    """The findings so far, at most MAX_OF_A_CODE and one of each code."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._seen: dict[str, int] = {}

    def error(self, code: str, part: Part, message: str, *hints: str, on_key: bool = False) -> None:
        """Add an error."""
        self._add(code, part, message, hints, Severity.ERROR, on_key=on_key)

    def warn(self, code: str, part: Part, message: str, *hints: str, on_key: bool = False) -> None:
        """Add a warning."""
        self._add(code, part, message, hints, Severity.WARNING, on_key=on_key)

    def has_room(self, code: str) -> bool:
        """Whether one more finding of the code would be shown: its hint may be expensive."""
        return self._seen.get(code, 0) <= MAX_OF_A_CODE

    def take(self, finding: Finding) -> None:
        """Add a finding that has a position."""
        number = self._seen[finding.code] = self._seen.get(finding.code, 0) + 1
        if number <= MAX_OF_A_CODE:
            self.findings.append(finding)
        elif number == MAX_OF_A_CODE + 1:
            self.findings.append(replace(finding, message=f"further findings of {finding.code} are not shown", hints=()))

    def _add(  # noqa: PLR0913 - the fields of a finding
        self, code: str, part: Part, message: str, hints: tuple[str, ...], severity: Severity, *, on_key: bool
    ) -> None:
        if not self.has_room(code):
            return
        file, span = part.place(on_key=on_key)
        escaped = tuple(hint.replace("\n", "\\n") for hint in hints)
        self.take(
            Finding(
                code=code,
                message=message.replace("\n", "\\n"),
                hints=escaped,
                severity=severity,
                path=part.origin.pointer(part.path),
                on_key=on_key,
                file=file,
                span=span,
            )
        )
