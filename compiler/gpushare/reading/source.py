"""Bytes → Source: the text, its plain values, and the position of each value.

Owns reading: encoding, size limits, YAML syntax, and the way from a path back to lines and columns. Any bytes give a Source:
its findings report what is wrong with them, and nothing is raised. Does not check what the values mean.

PyYAML's parser on libyaml gives the events; its own Python parser is used if libyaml is not compiled in. ruamel.yaml would
implement the rules of YAML 1.2, but scans in Python: for 1 MiB of pools it takes seven seconds, this module half a second.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import Any

import yaml

from gpushare.core.diagnostics import Finding, Path, Span
from gpushare.core.wording import shorten
from gpushare.reading.tree import MAX_WEIGHT, TOO_DEEP, Builder, RawFinding, TreeNode
from gpushare_node.contract.struct import Struct, replace

MAX_BYTES = 4 << 20
"""The largest document. A thousand pools of twenty named nodes each need about half a megabyte."""
_SPLIT = "describe fewer pools, or select nodes by labels instead of names"
MAX_OWN_WEIGHT = 5_000_000
"""Most values of a document that gpushare wrote: an intent of ten thousand quotas has tens of thousands."""
MAX_DIRECTIVES = 20
"""Most tag directives: libyaml compares each with all before it, and tags are not supported anyway."""
MAX_FINDINGS = 100
"""Most findings on one text; one more then reports how many are not shown."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_BREAK = r"\r\n|\r|\n"
# Characters that YAML defines as not printable, line breaks of YAML 1.1 only, and byte order marks within the text.
_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff]")
_TAG_DIRECTIVE = re.compile(r"(?:^|\r)(%TAG)", re.MULTILINE)
_WIDE_MARKS = {b"\xff\xfe\x00\x00": "UTF-32", b"\x00\x00\xfe\xff": "UTF-32", b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}

_OWN_LIMIT = "exceeded maximum nesting depth"
"""libyaml from 0.2.6 on (PyYAML 6.0.4) stops at a depth of 1,000, and may do so before the first of the events."""

# Messages of the parsers, and the same in the words of a user who writes an intent.
_ALIGN = "indent it like its neighbours, and check quotes and brackets"
_IN_OTHER_WORDS = (
    ("mapping values are not allowed", "a colon is not expected here", "check the indentation, or put the text in quotes"),
    ("could not find expected ':'", "the colon that makes a key is missing", "write key: value"),
    ("sequence entries are not allowed", "a list cannot begin on the line of its key", "begin the list on the next line"),
    ("did not find expected key", "this line fits no mapping above it", _ALIGN),
    ("did not find expected '-'", "this line is not an entry of the list above", "begin it with '- ', or indent it less"),
    ("expected <block end>", "this line fits nothing above it", _ALIGN),
    ("expected ',' or", "a comma or a closing bracket is missing", "close the bracket that opens here"),
    ("unexpected end of stream", "the quotes that begin here are never closed", "add the closing quotes"),
    ("cannot start any token", "a value cannot begin with this character", "put the text in quotes"),
    ("expected <document start>", "more text follows where the document has ended", "one file holds one document"),
    ("escape", "this backslash escape does not exist", "double the backslash, or use single quotes"),
    ("found undefined tag handle", "this tag is not read: plain YAML needs none", "leave the tag out"),
)
_CLOSE_COLON = r"(?m)([A-Za-z][\w.-]*):(?!//)([^\s:#]+)[ \t]*(?:#.*)?$"
"""A line with a key and a value that YAML reads as one word."""


class Source(Struct):
    """One document: its text, its values as plain dicts, lists and scalars, and the findings on its text.

    `findings` have positions. If one of them is an error, `data` may be None or lack the part concerned.
    """

    file: str
    text: str = ""
    data: Any = None
    findings: tuple[Finding, ...] = ()
    root: TreeNode | None = None

    @property
    def texts(self) -> "Source | Mapping[str, Source]":
        """What findings quote lines of: this document, or, where several files make it up, each by its name."""
        return self

    @cached_property
    def _starts(self) -> "array[int]":
        starts = array("L", [0])
        starts.extend(found.end() for found in re.finditer(_BREAK, self.text))
        return starts

    def line(self, number: int) -> str:
        """Return the text of a line, counted from 1, without its line break; "" if there is no such line."""
        if not 1 <= number <= len(self._starts):
            return ""
        behind = self._starts[number] if number < len(self._starts) else len(self.text)
        return self.text[self._starts[number - 1] : behind].rstrip("\r\n")

    def line_of(self, offset: int) -> int:
        """Return the line, counted from 1, of a character's offset."""
        return bisect_right(self._starts, offset)

    def span(self, start: int, end: int) -> Span:
        """Return the lines and columns of the characters from `start` up to, but not including, `end`."""
        line, end_line = self.line_of(start), self.line_of(max(start, end))
        column, end_column = start - self._starts[line - 1] + 1, max(start, end) - self._starts[end_line - 1] + 1
        return Span(line=line, column=column, end_line=end_line, end_column=end_column)

    def written(self, path: Path) -> str:
        """Return the characters of the value at the path, as the user wrote them; "" if there is no value."""
        node, _, found = self._walk(path)
        return self.text[node.start : node.end] if node and found == len(path) else ""

    def offset(self, path: Path) -> int:
        """Return the offset of the first character of the value at the path; 0 if there is no value."""
        node, _, found = self._walk(path)
        return node.start if node and found == len(path) else 0

    def key_offset(self, path: Path) -> int | None:
        """Return the offset of the key of the value at the path; None if there is no value, or it has no key."""
        _, key, found = self._walk(path)
        return key[0] if key and found == len(path) else None

    def start_of_line(self, number: int) -> int:
        """Return the offset of the first character of a line, counted from 1, that exists."""
        return self._starts[number - 1]

    def locate(self, finding: Finding) -> Finding:
        """Return the finding with its file and span.

        The span is the value's. It is the key's if the finding is on the key or the value has no characters (`key:`), and, if
        the path leads to something missing, the key of the innermost mapping that exists. For a list entry, which has no key
        of its own, it is the entry itself; for the root, which spans everything, the document's first character. A mapping or
        list in block style ends with its last value.
        """
        if "\n" in finding.message or any("\n" in hint for hint in finding.hints):  # from a name that the user wrote
            hints = tuple(hint.replace("\n", "\\n") for hint in finding.hints)
            finding = replace(finding, message=finding.message.replace("\n", "\\n"), hints=hints)
        if finding.span:
            return replace(finding, file=finding.file or self.file)
        node, key, found = self._walk(finding.path)
        if node is None:
            return replace(finding, file=self.file, span=self.span(0, 0))
        missing = found < len(finding.path)
        if key and (missing or finding.on_key or node.start == node.end):
            start, end = key
        elif node is self.root:
            start, end = node.start, min(node.start + 1, node.end)
        else:
            start, end = node.start, node.end
        return replace(finding, file=self.file, span=self.span(start, end))

    def _walk(self, path: Path) -> tuple[TreeNode | None, tuple[int, int] | None, int]:
        """Return the deepest existing node on the path, the span of its key if it has one, and how many steps led to it."""
        node, key = self.root, None
        for number, step in enumerate(path):
            children = node.children if node else None
            if isinstance(children, dict) and isinstance(step, str) and step in children:
                start, end, node = children[step]
                key = (start, end)
            elif isinstance(children, list) and isinstance(step, int) and 0 <= step < len(children):
                node, key = children[step], None
            else:
                return node, key, number
        return node, key, len(path)


def read(data: bytes, file: str, *, own: bool = False) -> Source:
    """Return the document in the bytes of a file. `file` is its name in findings. Never raises, for any bytes.

    `own`: a file that gpushare wrote; it may be larger than a user's file, because a line of an intent becomes many.
    """
    empty = Source(file=file)
    if len(data) > MAX_BYTES and not own:
        message = f"the file has more than {MAX_BYTES >> 20} MiB, which is the limit"
        return _refused(empty, [RawFinding(code="GS002", message=message, start=0, end=0, hints=(_SPLIT,))])
    for mark, name in _WIDE_MARKS.items():
        if data.startswith(mark):
            return _refused(empty, [_not_utf8(f"the file is {name}, not UTF-8", 0, 0)])
    try:
        source = Source(file=file, text=data.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        before = len(error.object[: error.start].decode())
        source = Source(file=file, text=data.decode("utf-8-sig", errors="replace"))
        return _refused(source, [_not_utf8(f"byte 0x{error.object[error.start]:02x} here is not UTF-8", before, before + 1)])
    forbidden = list(_forbidden(source.text))
    return _refused(source, forbidden) if forbidden else _parsed(source, MAX_OWN_WEIGHT if own else MAX_WEIGHT)


def _not_utf8(message: str, start: int, end: int) -> RawFinding:
    return RawFinding(code="GS001", message=message, start=start, end=end, hints=("save the file as UTF-8 text",))


def _forbidden(text: str) -> Iterator[RawFinding]:
    for number, found in enumerate(_FORBIDDEN.finditer(text)):
        if number == MAX_FINDINGS:
            return
        character = f"U+{ord(found[0]):04X}"
        message = f"the character {character} does not belong in a text file"
        if found[0] in "\u0085\u2028\u2029":
            message = f"the character {character} is a line break to some YAML parsers and not to others"
        hint = f'remove it, or write it in double quotes as "\\u{ord(found[0]):04x}"'
        yield RawFinding(code="GS001", message=message, start=found.start(), end=found.end(), hints=(hint,))


def _parsed(source: Source, most: int) -> Source:
    builder = Builder(source.text, source.line_of, MAX_FINDINGS, most)
    outside: list[RawFinding] = []
    many = next(islice(_TAG_DIRECTIVE.finditer(source.text), MAX_DIRECTIVES, None), None)
    if many:
        hints = ("leave them out: plain YAML needs no tags",)
        message = f"more than {MAX_DIRECTIVES} %TAG directives are not read"
        return _refused(source, [RawFinding(code="GS010", message=message, start=many.start(1), end=many.end(1), hints=hints)])
    try:
        _feed(builder, source.text, outside)
    except (yaml.YAMLError, ValueError) as error:
        outside.append(_syntax(source.text, error))
    root = builder.root
    complaints = sorted(builder.complaints + outside, key=lambda complaint: complaint.start)
    if root is None or root.value is None:
        if not complaints:
            complaints.append(
                RawFinding(
                    code="GS011",
                    message="the document is empty",
                    start=0,
                    end=min(1, len(source.text)),
                    hints=("gpushare init writes a first one",),
                )
            )
        root = None
    return _refused(replace(source, data=root.value if root else None, root=root), complaints, builder.not_shown)


def _feed(builder: Builder, text: str, outside: list[RawFinding]) -> None:
    documents = behind = 0
    for event in yaml.parse(text, Loader=_LOADER):
        kind = type(event)
        if kind is yaml.DocumentStartEvent:
            documents += 1
            if documents > 1 and len(outside) < MAX_FINDINGS:
                outside.append(_second_document(event))
        elif documents == 1:
            _pass_on(event, kind, builder, text)
        behind += documents > 1
        if builder.over or behind > MAX_WEIGHT:  # events of further documents
            return


def _second_document(event: Any) -> RawFinding:
    start, end = event.start_mark.index, event.end_mark.index
    message, hints = "a second document begins here: one file holds one", ("give it a file of its own",)
    return RawFinding(code="GS006", message=message, start=start, end=end, hints=hints)


def _pass_on(event: Any, kind: type, builder: Builder, text: str) -> None:
    start, end = event.start_mark.index, event.end_mark.index
    if kind is yaml.ScalarEvent:
        if event.style in ("|", ">"):
            end = start + len(text[start:end].rstrip())
        if event.style == '"' and not event.value.isascii():
            event.value.encode()  # PyYAML's own parser accepts half a surrogate pair: the caller reports the error as bad YAML
        builder.scalar(event.value, start, end, plain=not event.style, tag=event.tag is not None, anchor=event.anchor)
    elif kind is yaml.MappingStartEvent or kind is yaml.SequenceStartEvent:
        mapping = kind is yaml.MappingStartEvent
        builder.open(mapping=mapping, start=start, end=end, tag=event.tag is not None, anchor=event.anchor)
    elif kind is yaml.AliasEvent:
        builder.alias(event.anchor, start, end)
    elif kind is yaml.MappingEndEvent or kind is yaml.SequenceEndEvent:
        builder.close(end if end > start else 0)


def _syntax(text: str, error: Exception) -> RawFinding:
    problem = str(getattr(error, "problem", None) or error)
    mark, context = getattr(error, "problem_mark", None), getattr(error, "context_mark", None)
    start: int = mark.index if mark else 0
    if _OWN_LIMIT in problem:
        return RawFinding(code="GS008", message=TOO_DEEP, start=start, end=min(start + 1, len(text)))
    if context and start >= len(text.rstrip()):
        start = context.index  # what is never closed is a better position than the end of the file
    line_start = max(text.rfind("\n", 0, start), text.rfind("\r", 0, start)) + 1
    indentation = len(text[line_start : start + 1]) - len(text[line_start : start + 1].lstrip())
    if "\t" in text[line_start : line_start + indentation] or text[start : start + 1] == "\t":
        start = start if text[start : start + 1] == "\t" else text.index("\t", line_start)
        message, hint = "this is a tab: YAML permits only spaces for indentation", "replace the tab by spaces"
    elif context and (close := re.compile(_CLOSE_COLON).match(text, context.index)):
        start = context.index
        message, hint = "a space is missing after the colon", f"write {shorten(close[1])}: {shorten(close[2])}"
    else:
        found = [(message, hint) for part, message, hint in _IN_OTHER_WORDS if part in problem]
        plainly = (f"invalid YAML: {problem[:200]}", "put text that is not plain words in quotes")
        message, hint = found[0] if found else plainly
    start = min(start, len(text))
    visible = text[start : start + 1].strip("\r\n")
    return RawFinding(code="GS003", message=message, start=start, end=start + len(visible), hints=(hint,))


def _refused(source: Source, complaints: list[RawFinding], not_shown: int = 0) -> Source:
    """Return the source with its findings and their spans; the last one reports how many are not shown, if there are more."""
    not_shown += max(0, len(complaints) - MAX_FINDINGS)
    findings = [
        Finding(
            code=complaint.code,
            message=complaint.message,
            hints=complaint.hints,
            path=complaint.path,
            file=source.file,
            span=source.span(complaint.start, complaint.end),
        )
        for complaint in complaints[:MAX_FINDINGS]
    ]
    if not_shown:
        findings.append(replace(findings[-1], message=f"{not_shown} more findings are not shown", hints=()))
    return replace(source, findings=tuple(findings))
