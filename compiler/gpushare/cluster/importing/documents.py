"""The bytes of files to their objects: several documents in one file, JSON, lists of objects, configs inside text values.

Owns splitting and the limits on what is read, and the way from a line and column of a text inside a document to those of the
file, for every style in which YAML and JSON write text. Where such a text is not exactly what the file's lines contain (folded
text), the position is that of the whole value. Any bytes give objects and findings. Does not know what an object means.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

from gpushare.cluster.importing.parts import (
    PLACEHOLDER_HINT,
    FromFile,
    FromProgram,
    Notes,
    Part,
    Place,
    is_placeholder,
    shifted,
)
from gpushare.core.diagnostics import Finding, Path, Severity, Span
from gpushare.core.wording import shorten
from gpushare.reading import source
from gpushare.reading.source import Source
from gpushare_node.contract.struct import Struct, replace

# A double-quoted text in pieces: an escaped line break, an escape, white space, other characters.
_PIECE = re.compile(r"\\\r?\n[ \t]*|\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|[ \t\r\n]+|[^\\\r\n \t]+")
_NAMED = {
    "n": "\n",
    "t": "\t",
    "r": "\r",
    '"': '"',
    "\\": "\\",
    "/": "/",
    " ": " ",
    "0": "\0",
    "e": "\x1b",
    "a": "\a",
    "b": "\b",
    "f": "\f",
    "v": "\v",
    "N": "\x85",
    "_": "\xa0",
    "L": "\u2028",
    "P": "\u2029",
    "\t": "\t",
}


class FromText(Struct):
    """A document inside the text value `outer`."""

    source: Source
    outer: Part

    def place(self, path: Path, *, on_key: bool) -> Place:
        """Return the position in the file of `outer`."""
        _, inner = FromFile(source=self.source).place(path, on_key=on_key)
        file, whole = self.outer.place()
        return file, (self.outside(inner) or whole) if inner else whole

    def pointer(self, path: Path) -> Path:
        """Return the path of the text value: a JSON pointer cannot go into it."""
        del path
        return self.outer.origin.pointer(self.outer.path)

    def outside(self, inner: Span) -> Span | None:
        """Return the span in the file; None if it cannot be told."""
        origin = self.outer.origin
        if not isinstance(origin, FromFile):
            return None
        offsets = self._offsets
        if offsets is not None:
            return self._by_offset(origin, inner, offsets)
        start = self._line_of_block
        ends = [self._column(start, line) for line in (inner.line, inner.end_line)] if start else [None]
        if start is None or None in ends:
            return None
        first, last = (end or 0 for end in ends)
        span = Span(
            line=start + inner.line,
            column=inner.column + first,
            end_line=start + inner.end_line,
            end_column=inner.end_column + last,
        )
        return shifted(span, origin.before)

    @cached_property
    def _written(self) -> tuple[str, int]:
        """The characters of the value in the file, and the offset of the first."""
        origin = self.outer.origin
        if not isinstance(origin, FromFile):
            return "", 0
        written = origin.source.written(self.outer.path)
        place = origin.source.offset(self.outer.path)
        return written, place

    @cached_property
    def _line_of_block(self) -> int | None:
        """The line of the `|` of a literal block."""
        origin = self.outer.origin
        written, start = self._written
        return origin.source.line_of(start) if isinstance(origin, FromFile) and written.startswith("|") else None

    def _column(self, start: int, line: int) -> int | None:
        """Return the indentation of the block in the file, from a line that both have."""
        origin = self.outer.origin
        outer = origin.source.line(start + line) if isinstance(origin, FromFile) else ""
        inner = self.source.line(line)
        return len(outer) - len(inner) if outer.endswith(inner) else None

    @cached_property
    def _offsets(self) -> tuple[list[int], list[int]] | None:
        """For text on one line or in quotes: the inner offset at which each piece begins, and its offset in the file."""
        written, start = self._written
        if written == self.source.text:
            return [0], [start]
        if not written.startswith('"'):
            return None
        pieces = [(found.start(), _meaning(found[0])) for found in _PIECE.finditer(written[1:-1])]
        if "".join(text for _, text in pieces) != self.source.text:
            return None
        inside = [0, *accumulate(len(text) for _, text in pieces)]
        return inside, [start + 1 + at for at, _ in pieces] + [start + len(written) - 1]

    def _by_offset(self, origin: FromFile, inner: Span, offsets: tuple[list[int], list[int]]) -> Span:
        inside, outside = offsets
        ends = []
        for line, column in ((inner.line, inner.column), (inner.end_line, inner.end_column)):
            wanted = self.source.start_of_line(line) + column - 1
            piece = bisect_right(inside, wanted) - 1
            ends.append(outside[piece] + wanted - inside[piece])
        return shifted(origin.source.span(*ends), origin.before)


def _meaning(piece: str) -> str:
    if piece[0] == "\\":
        if piece[1] in "\r\n":
            return ""
        return chr(int(piece[2:], 16)) if piece[1] in "xuU" and int(piece[2:], 16) < 0x110000 else _NAMED.get(piece[1], "\0")
    breaks = piece.count("\n")
    return "\n" * (breaks - 1) or " " if breaks else piece


MAX_BYTES = 64 << 20
"""The largest file: `kubectl get nodes -o yaml` prints about 15 KB for a node."""
MAX_DOCUMENTS = 2500
MAX_TEXT = 2 << 20
"""Most characters of configs inside other documents; each different text counts once."""
MAX_TEXTS = 2000
_EMPTY, _AMBIGUOUS = "GS011", "GS005"
_MARK = re.compile(r"^(?:---|\.\.\.)(?=[ \t\r\n]|\Z)", re.MULTILINE)
_CONTENT = re.compile(r"^(?!---|\.\.\.|%|[ \t]*(?:#|\r?$))", re.MULTILINE)


class InputFile(Struct):
    """One file: the bytes and its name in findings. Or an object that a program has parsed: `document`."""

    name: str
    data: bytes = b""
    document: Mapping[str, Any] | None = None


class FileLines(Struct):
    """The lines of a file, for the excerpts of findings."""

    parts: tuple[FromFile, ...]

    def line(self, number: int) -> str:
        """Return the line of that number, from 1."""
        for part in reversed(self.parts):
            if part.before < number:
                return part.source.line(number - part.before)
        return ""


class Reader:
    """Reads inputs; `notes` gets what is wrong with their text, `lines` the lines of each file."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes
        self._texts: dict[str, Source] = {}
        self._characters = self._number = 0
        self.lines: dict[str, FileLines] = {}

    def objects(self, inputs: Sequence[InputFile]) -> Iterator[Part]:
        """Yield every object of every input; the entries of a list of objects one by one."""
        for one in inputs:
            if one.document is not None:
                yield from _entries(Part(one.document, FromProgram(name=one.name)))
            else:
                yield from self._of_file(one)

    def _of_file(self, one: InputFile) -> Iterator[Part]:
        if len(one.data) > MAX_BYTES:
            self._limit(one.name, f"the file has more than {MAX_BYTES >> 20} MiB, which is the limit")
            return
        parts: list[FromFile] = []
        for before, text in _documents(one.data):
            if len(parts) == MAX_DOCUMENTS:
                self._limit(one.name, f"the file has more than {MAX_DOCUMENTS} documents")
                break
            parts.append(FromFile(source=source.read(text, one.name, own=len(text) > source.MAX_BYTES), before=before))
        self.lines[one.name] = FileLines(parts=tuple(parts))
        for part in parts:
            if self._is_readable(part, alone=len(parts) == 1) and part.source.data is not None:
                yield from _entries(Part(part.source.data, part))

    def _is_readable(self, part: FromFile, *, alone: bool) -> bool:
        """Whether nothing but doubtful words is wrong with the text: readers of YAML 1.1 know what they mean."""
        wrong = [found for found in part.source.findings if found.code != _AMBIGUOUS and (alone or found.code != _EMPTY)]
        for found in wrong:
            hints = (*found.hints, PLACEHOLDER_HINT) if is_placeholder(part.source.text) else found.hints
            self._notes.take(replace(found, hints=hints, span=found.span and shifted(found.span, part.before)))
        return not wrong

    def _limit(self, name: str, message: str) -> None:
        at = Span(line=1, column=1, end_line=1, end_column=1)
        self._notes.take(
            Finding(
                code="GS866",
                message=message,
                file=name,
                span=at,
                severity=Severity.ERROR,
                hints=("give fewer objects: Nodes, ConfigMaps, ResourceQuotas and Helm values",),
            )
        )

    def embedded(self, part: Part) -> Part | None:
        """Return the document in a text value; None if the text cannot be read: findings say why. Empty text is `None`."""
        text = part.text
        self._number += 1
        read = self._texts.get(text) if self._number <= MAX_TEXTS else None
        if read is None:
            self._characters += len(text)
            if self._characters > MAX_TEXT or self._number > MAX_TEXTS:
                self._notes.error(
                    "GS866",
                    part,
                    "the configs inside other objects are too many or too long to be read",
                    "import fewer ConfigMaps at a time",
                )
                return None
            read = self._texts[text] = _first_document(text)
        origin = FromText(source=read, outer=part)
        wrong = [found for found in read.findings if found.code not in (_AMBIGUOUS, _EMPTY)]
        for found in wrong:
            file, whole = part.place()
            at = (found.span and origin.outside(found.span)) or whole
            hints = (*found.hints, PLACEHOLDER_HINT) if is_placeholder(text) else found.hints
            self._notes.take(replace(found, hints=hints, file=file, span=at, path=origin.pointer(())))
        return None if wrong else Part(read.data, origin)


def _first_document(text: str) -> Source:
    """Return the text's first document, the only one that NVIDIA's programs read."""
    data = text.encode("utf-8", "replace")  # half a surrogate pair is not UTF-8
    for found in _MARK.finditer(data.decode("latin-1")):
        if _CONTENT.search(data[: found.start()].decode("latin-1")):
            return source.read(data[: found.start()], "")
    return source.read(data, "")


def _documents(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each document with the number of lines before it. YAML has no text in which a mark may begin a line."""
    starts = [0, *(found.start() for found in _MARK.finditer(data.decode("latin-1")) if found.start())]
    before = 0
    for number, start in enumerate(starts):
        text = data[start : starts[number + 1] if number + 1 < len(starts) else len(data)]
        yield before, (b"   " + text[3:] if text.startswith(b"...") else text)
        before += text.count(b"\n")


def _entries(part: Part) -> Iterator[Part]:
    kind = part.at("kind").text
    if kind.endswith("List") and isinstance(part.at("items").value, list):
        for entry in part.at("items").entries():
            if entry.at("kind").text != "List":
                yield from _entries(_named(entry, kind.removesuffix("List"), part.at("apiVersion").text).fresh())
    elif isinstance(part.value, list):
        yield from (entry.fresh() for entry in part.entries() if isinstance(entry.value, dict))
    else:
        yield part


def _named(entry: Part, kind: str, version: str) -> Part:
    """Return an entry of a list with its kind: the API server writes it only at the list, as `NodeList`."""
    if not kind or entry.has("kind") or not isinstance(entry.value, dict):
        return entry
    return Part({"apiVersion": version, "kind": kind, **entry.value}, entry.origin, entry.path)


def described(part: Part) -> str:
    """Return an object's kind and name, as in `ConfigMap gpu-operator/time-slicing`."""
    name, namespace = part.at("metadata", "name").text, part.at("metadata", "namespace").text
    whole = f"{namespace}/{name}" if namespace else name
    return f"{shorten(part.at('kind').text)} {shorten(whole)}".strip()
