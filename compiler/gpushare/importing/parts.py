"""A value of an input together with where it is: Part; and Notes, which collects the findings on parts.

Owns the way from a value back to its file, line and column, whatever contains it. Knows no kind of object.
"""

from collections.abc import Iterator
from typing import Any, Protocol

from gpushare.core.diagnostics import Finding, Path, Severity, Span
from gpushare.core.record import Record, replace
from gpushare.core.units import parse_amount
from gpushare.reading.source import Source

MAX_OF_A_CODE = 50
"""How many findings of one code are shown; one more reports that further ones are not."""

Place = tuple[str, Span | None]
_BILLION = 10**9
_TRUE, _FALSE = frozenset({"y", "yes", "on", "true"}), frozenset({"n", "no", "off", "false"})


class Origin(Protocol):
    """Where a document is from."""

    def place(self, path: Path, *, on_key: bool) -> Place:
        """Return the file and the span of the value at the path, or of its key."""

    def pointer(self, path: Path) -> Path:
        """Return the path in the whole document."""


class FromFile(Record):
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


class FromProgram(Record):
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
    """One value: `value` is None for null and for what is missing. Missing parts have the position of what is nearest."""

    __slots__ = ("origin", "path", "value")

    def __init__(self, value: Any, origin: Origin, path: Path = ()) -> None:
        self.value = value
        self.origin = origin
        self.path = path

    def at(self, *steps: str) -> "Part":
        """Return the part at these keys; its value is None if there is none."""
        value = self.value
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
        return Part(value, self.origin, (*self.path, *steps))

    def has(self, key: str) -> bool:
        """Whether the value is a mapping with the key, even if that has no value."""
        return isinstance(self.value, dict) and key in self.value

    def items(self) -> Iterator[tuple[str, "Part"]]:
        """Yield the keys and values of a mapping, sorted by key; nothing for another value."""
        if isinstance(self.value, dict):
            for key in sorted(key for key in self.value if isinstance(key, str)):
                yield key, self.at(key)

    def entries(self) -> Iterator["Part"]:
        """Yield the entries of a list; nothing for another value."""
        if isinstance(self.value, list):
            for number, value in enumerate(self.value):
                yield Part(value, self.origin, (*self.path, number))

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
        amount = parse_amount(self.text)
        if amount is None or amount % _BILLION or amount // _BILLION >= 1 << 31:
            return self.count
        return amount // _BILLION

    def place(self, *, on_key: bool = False) -> Place:
        """Return the file and the span."""
        return self.origin.place(self.path, on_key=on_key)

    def labels(self) -> dict[str, str]:
        """Return the entries of a mapping that are text; a JSON dump of an API server has no others among labels."""
        pairs = self.value.items() if isinstance(self.value, dict) else ()
        return {key: value for key, value in pairs if isinstance(value, str)}


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
        said = message.replace("\n", "\\n")
        escaped = tuple(hint.replace("\n", "\\n") for hint in hints)
        self.take(Finding(code=code, message=said, hints=escaped, severity=severity, path=part.origin.pointer(part.path),
                          on_key=on_key, file=file, span=span))
