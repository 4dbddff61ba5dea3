"""The text of JSON or YAML to its objects, each with the line where it begins; lists of objects one by one.

JSON is read object by object: reading a `kubectl get -o json` of ten thousand pods with all positions would take minutes.
"""

import json
import re
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Any

from gpushare.reading import source
from gpushare.study.workload.requests import WorkloadError

_MAX_YAML = 16 << 20
_SPACE = re.compile(r"[ \t\r\n]*")
_MARK = re.compile(r"^---(?=[ \t\r\n]|\Z)", re.MULTILINE)
_AMBIGUOUS, _EMPTY = "GS005", "GS011"
_DECODER = json.JSONDecoder()

Entry = tuple[int, Any]
"""A line, counted from 1, and the object that begins there."""


def of_json(text: str, name: str) -> Iterator[Entry]:
    """Yield the objects of one or several JSON values; of a value with `items` those. Raises WorkloadError."""
    at, lines = _skip(text, 0), _Lines(text)
    try:
        while at < len(text):
            if text[at] == "[":
                at = yield from _elements(text, at, lines)
            elif text[at] == "{":
                at = yield from _members(text, at, lines)
            else:
                raise json.JSONDecodeError("an object is expected", text, at)
            at = _skip(text, at)
    except json.JSONDecodeError as problem:
        where = f"{name}:{problem.lineno}:{problem.colno}"
        raise WorkloadError(f"{where}: this is no JSON: {problem.msg}", "was the file cut off?") from problem
    except (ValueError, RecursionError) as problem:  # a number of ten thousand digits, ten thousand brackets
        raise WorkloadError(f"{name}:{lines.of(at)}: this JSON is too deep, or has a number that is too long") from problem


class _Lines:
    """The line of offsets that only grow."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at, self._line = 0, 1

    def of(self, offset: int) -> int:
        """Return the line, counted from 1."""
        self._line += self._text.count("\n", self._at, offset)
        self._at = max(self._at, offset)
        return self._line


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _elements(text: str, at: int, lines: _Lines) -> Generator[Entry, None, int]:
    """Yield the elements of the list that begins at the offset; return the offset behind it."""
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        line = lines.of(at)
        value, at = _DECODER.raw_decode(text, at)
        yield line, value
        at = _behind(text, at, "]")
    return at + 1


def _members(text: str, start: int, lines: _Lines) -> Generator[Entry, None, int]:
    """Yield the elements of the member `items`, or the whole object if it has none; return the offset behind it."""
    line, at, others, is_list = lines.of(start), _skip(text, start + 1), {}, False
    while text[at : at + 1] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, at)
        if not isinstance(key, str) or text[at : at + 1] != ":":
            raise json.JSONDecodeError("a key and a colon are expected", text, at)
        at = _skip(text, at + 1)
        if key == "items" and text[at : at + 1] == "[":
            is_list = True
            at = yield from _elements(text, at, lines)
        else:
            others[key], at = _DECODER.raw_decode(text, at)
        at = _behind(text, at, "}")
    if not is_list:
        yield line, others
    return at + 1


def _behind(text: str, at: int, end: str) -> int:
    """Return the offset of the next element, or of the end of the list or object."""
    at = _skip(text, at)
    if text[at : at + 1] == ",":
        return _skip(text, at + 1)
    if text[at : at + 1] != end:
        raise json.JSONDecodeError(f"a comma or {end} is expected", text, at)
    return at


def of_yaml(text: str, name: str) -> Iterator[Entry]:
    """Yield the objects of the documents of a YAML text; of a document with `items` those. Raises WorkloadError."""
    if len(text) > _MAX_YAML:
        hint = "JSON is read faster: kubectl get pods -A -o json"
        raise WorkloadError(f"{name} has more than {_MAX_YAML >> 20} MiB of YAML, which is the limit", hint)
    starts = [0, *(found.start() for found in _MARK.finditer(text) if found.start()), len(text)]
    before = 0
    for start, end in pairwise(starts):
        part = text[start:end]
        read = source.read(part.encode(), name, own=True)
        wrong = next((one for one in read.findings if one.code not in (_AMBIGUOUS, _EMPTY)), None)
        if wrong is not None:
            line, column = (wrong.span.line, wrong.span.column) if wrong.span else (1, 1)
            raise WorkloadError(f"{name}:{before + line}:{column}: {wrong.message}", "".join(wrong.hints[:1]))
        data = read.data
        is_list = isinstance(data, dict) and isinstance(data.get("items"), list)
        if is_list or isinstance(data, list):
            path = ("items",) if is_list else ()
            for at, one in enumerate(data["items"] if is_list else data):
                yield before + read.line_of(read.offset((*path, at))), one
        elif data is not None:
            yield before + read.line_of(read.offset(())), data
        before += part.count("\n")
