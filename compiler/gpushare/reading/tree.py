"""A document as a tree of light nodes: plain values, each with the span of text it came from.

Owns the building of the tree from a reader's events and every finding on keys, tags, aliases and sizes. Opens no
files and knows no YAML library: `source` feeds it. Offsets count characters from the start of the text.

`resolve` types plain scalars by the core schema of YAML 1.2, and knows where YAML 1.1 readers (PyYAML, and the Go readers of
kubectl and Helm) would type the same characters differently: null, a boolean, a number or text. Sources for YAML 1.1: PyYAML's
resolver and go-yaml's `resolve.go`.
"""

import re
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from gpushare.core.diagnostics import Path
from gpushare.core.wording import shorten
from gpushare_node.contract.struct import Struct

MAX_DEPTH = 64
TOO_DEEP = f"mappings and lists are nested more than {MAX_DEPTH} deep here"
"""Most collections within each other. An intent needs about ten."""
MAX_WEIGHT = 250_000
"""Most nodes of the document with its aliases expanded; 32 characters of text count as much as a node."""

_PROPERTY = r"([&!]\S*)(?:\s|(?<=\s)#[^\r\n]*)*"


class TreeNode:
    """One value. `children` is None for scalars; sequences have nodes, mappings (key start, key end, node) by key."""

    __slots__ = ("children", "end", "start", "value", "weight")

    def __init__(self, value: Any, start: int, end: int) -> None:
        self.value = value
        self.start = start
        self.end = end
        self.children: dict[str, tuple[int, int, TreeNode]] | list[TreeNode] | None = None
        self.weight = 1


class RawFinding(Struct):
    """A finding that does not have lines and columns yet."""

    code: str
    message: str
    start: int
    end: int
    path: Path = ()
    hints: tuple[str, ...] = ()


class _Frame:
    """An open collection. In a mapping, `keyed`: `key` waits for its value; `dropped`: the value is discarded.

    `unfilled`: the key without a value whose fields repeat those above it, once that is reported.
    """

    __slots__ = ("anchor", "dropped", "key", "key_end", "key_start", "keyed", "node", "unfilled")

    def __init__(self, node: TreeNode, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.keyed = False
        self.dropped = False
        self.key = ""
        self.key_start = self.key_end = 0
        self.unfilled: str | None = None


class Builder:
    """Takes one document's events in order; builds `root` and at most `room` complaints.

    `over`: a limit was reached, and the caller need not pass more events.
    """

    def __init__(self, text: str, line_of: Callable[[int], int], room: int, most: int = MAX_WEIGHT) -> None:
        self._text = text
        self._line_of = line_of
        self._room = room
        self._most = most
        self._stack: list[_Frame] = []
        self._anchors: dict[str, TreeNode | None] = {}
        self._weight = 0
        self.root: TreeNode | None = None
        self.over = False
        self.complaints: list[RawFinding] = []
        self.not_shown = 0

    @property
    def has_room(self) -> bool:
        """Whether one more complaint is kept; `not_shown` counts those that are discarded."""
        return len(self.complaints) < self._room

    # The reader's events.

    def scalar(  # noqa: PLR0913  # an event's own fields
        self, text: str, start: int, end: int, *, plain: bool, tag: bool, anchor: str | None
    ) -> None:
        """Add a scalar; `plain`: it is unquoted, so it may be something other than text."""
        if tag or anchor:
            start = self._skip_properties(start, end, tag=tag)
        value, doubt = resolve(text) if plain else (text, "")
        node = TreeNode(value, start, end)
        node.weight += len(text) >> 5
        if doubt and not (text == "<<" and self._wants_key()):
            self._doubt(text, doubt, node)
        if anchor:
            self._anchors[anchor] = node
        self._count(node.weight, node)
        self._attach(node, plain=plain)

    def open(self, *, mapping: bool, start: int, end: int, tag: bool, anchor: str | None) -> None:
        """Begin a mapping or a sequence."""
        if tag or anchor:
            start = self._skip_properties(start, end, tag=tag)
        node = TreeNode({} if mapping else [], start, end)
        node.children = {} if mapping else []
        if anchor:
            self._anchors[anchor] = None
        self._refuse_collection_as_key(node)
        self._stack.append(_Frame(node, anchor))
        self._count(1, node)
        if len(self._stack) > MAX_DEPTH:
            self._stop("GS008", TOO_DEEP, node)

    def close(self, end: int) -> None:
        """End the innermost collection: after its bracket, or, in block style (`end` 0), with its last child."""
        frame = self._stack.pop()
        frame.node.end = end or frame.node.end
        if frame.anchor:
            self._anchors[frame.anchor] = frame.node
        self._attach(frame.node, plain=False)

    def alias(self, anchor: str, start: int, end: int) -> None:
        """Add `*anchor`: the anchored value again, with the span of the alias; its children keep their own spans."""
        node = TreeNode(None, start, end)
        target = self._anchors.get(anchor)
        if target is None:
            inside = anchor in self._anchors
            message = (
                f"*{anchor} {'is inside the value that it repeats' if inside else f'refers to the undefined anchor &{anchor}'}"
            )
            self._say("GS007", message, node)
            target = node
        node.value, node.children, node.weight = target.value, target.children, target.weight
        self._weight += target.weight
        if self._weight > self._most:
            self._stop("GS007", f"written out, the aliases up to *{anchor} make more than {self._most} values", node)
            return
        if node.children is not None:
            self._refuse_collection_as_key(node)
        self._attach(node, plain=False)

    # Keys and values.

    def _wants_key(self) -> bool:
        return bool(self._stack) and isinstance(self._stack[-1].node.children, dict) and not self._stack[-1].keyed

    def _attach(self, node: TreeNode, *, plain: bool) -> None:
        if not self._stack:
            self.root = node
            return
        frame = self._stack[-1]
        parent, children = frame.node, frame.node.children
        parent.weight += node.weight
        parent.end = max(parent.end, node.end)
        if isinstance(children, list):
            children.append(node)
            parent.value.append(node.value)
        elif isinstance(children, dict) and not frame.keyed:
            self._take_key(frame, children, node, plain=plain)
        elif isinstance(children, dict):
            frame.keyed = False
            if not frame.dropped:
                children[frame.key] = (frame.key_start, frame.key_end, node)
                parent.value[frame.key] = node.value

    def _take_key(self, frame: _Frame, taken: dict[str, tuple[int, int, TreeNode]], node: TreeNode, *, plain: bool) -> None:
        frame.keyed, frame.dropped = True, True
        frame.key_start, frame.key_end = node.start, node.end
        key = node.value
        if node.children is not None:
            return  # rejected where it began
        if plain and key == "<<":
            hint = ("write the fields out, or give the whole value an anchor and repeat it with an alias",)
            self._say("GS009", "merge keys are not read: << belongs to YAML 1.1", node, hint)
        elif not isinstance(key, str):
            written = shorten(self._text[node.start : node.end])
            quoted = (f'write "{written}" in quotes',) if written else ()
            self._say("GS010", f"a key must be text, not {written or 'nothing'}", node, quoted)
        elif key in taken:
            self._say_twice(frame, taken, key, node)
        else:
            frame.key, frame.dropped = key, False

    def _say_twice(self, frame: _Frame, taken: dict[str, tuple[int, int, TreeNode]], key: str, node: TreeNode) -> None:
        """Report a repeated key; after a key without a value only once, as its fields are just not indented below it."""
        if frame.unfilled is not None:
            return
        line = self._line_of(taken[key][0]) if self.has_room else 0
        message = f"{shorten(key)} is a duplicate key of this mapping: it is already in line {line}"
        since = takewhile(lambda name: name != key, reversed(taken)) if self.has_room else ()
        empty = next((name for name in since if taken[name][2].value is None), None)
        if empty is None:
            self._say("GS004", message, node, ("keep one of the two",))
        else:
            frame.unfilled = empty
            where = f"{shorten(empty)} in line {self._line_of(taken[empty][0])} has nothing below it"
            hint = f"{where}: indent it as far as its neighbours, and what belongs to it further; or keep one of the two"
            self._say("GS004", message, node, (hint,))

    def _refuse_collection_as_key(self, node: TreeNode) -> None:
        if self._wants_key():
            self._say("GS010", "a key must be text, not a mapping or a list", node)

    def _skip_properties(self, start: int, end: int, *, tag: bool) -> int:
        """Return where the value itself begins after `&anchor` and `!tag`; tags are rejected here."""
        behind, written = start, (start, end)
        while found := re.compile(_PROPERTY).match(self._text, behind, end):
            behind = found.end()
            if found[1].startswith("!"):
                written = found.span(1)
        if tag:
            message = f"the tag {shorten(self._text[slice(*written)])} is not read: plain YAML needs none"
            self._say("GS010", message, TreeNode(None, *written), ("leave the tag out; quotes make text of anything",))
        return behind if behind > start else end

    # Limits and findings.

    def _count(self, weight: int, node: TreeNode) -> None:
        self._weight += weight
        if self._weight > self._most:
            self._stop("GS008", f"the document has more than {self._most} values", node)

    def _doubt(self, text: str, doubt: str, node: TreeNode) -> None:
        word = shorten(text)
        hints = [f'write "{word}" in quotes if it is text']
        if doubt.endswith(("true", "false")):
            hints.append("for a boolean write true or false, for nothing write none")
        elif "number" in doubt:
            hints.append("write a number in plain digits, without leading zeros or exponents")
        self._say("GS005", f"{word} {doubt}", node, tuple(hints))

    def _stop(self, code: str, message: str, node: TreeNode) -> None:
        if not self.over:
            self._say(code, message, node)
        self.over = True

    def _say(self, code: str, message: str, node: TreeNode, hints: tuple[str, ...] = ()) -> None:
        if not self.has_room:
            self.not_shown += 1
            return
        place = self.path()
        self.complaints.append(RawFinding(code=code, message=message, start=node.start, end=node.end, path=place, hints=hints))

    def path(self) -> Path:
        """Return the path of the next value; without its key if that is not known yet or not usable."""
        steps: list[str | int] = []
        for frame in self._stack:
            if isinstance(frame.node.children, list):
                steps.append(len(frame.node.children))
            elif frame.keyed and not frame.dropped:
                steps.append(frame.key)
            else:
                break
        return tuple(steps)


_WORDS: dict[str, bool | None] = dict.fromkeys(("", "~", "null", "Null", "NULL"))
_WORDS |= dict.fromkeys(("true", "True", "TRUE"), True)
_WORDS |= dict.fromkeys(("false", "False", "FALSE"), False)

_TRUE_FOR_SOME = frozenset({"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"})
_FALSE_FOR_SOME = frozenset({"n", "N", "no", "No", "NO", "off", "Off", "OFF"})

_INTEGER = r"(?:[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+)\Z"
_FLOAT = r"(?:[-+]?[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][-+][0-9]+)?\Z"
_NOT_FINITE = r"[-+]?\.(?:inf|Inf|INF)\Z|\.(?:nan|NaN|NAN)\Z"
# Forms that only some readers parse as numbers, without underscores, which go-yaml and PyYAML ignore.
_NUMBER_FOR_SOME = r"""(?x)
    [-+]?(?: 0[xX][0-9a-fA-F]+ | 0[oO][0-7]+ | 0[bB][01]+            # hexadecimal with sign or X, octal, binary
             | (?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?      # leading zeros, exponents without point or sign
             | [1-9][0-9]*(?::[0-5]?[0-9])+                              # base sixty: 12:34
             | [0-9]+(?::[0-5]?[0-9])+\.[0-9]*
             )\Z"""
# PyYAML and ruamel.yaml parse these as numbers as well, and fail.
_PREFIX_ALONE = r"[-+]?0[xbo]_+\Z"
_DATE = r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}.*)?\Z"

_NUMERIC = frozenset("0123456789+-._:abcdefxoin" + "ABCDEFXOIN")
"""All characters of these forms but dates, which have a hyphen behind the year."""

# Integers that every reader represents exactly: 64 bits with a sign. The length limit keeps the conversion itself cheap.
_LIMIT = 1 << 63
_MAX_NUMBER_LENGTH = 40

Scalar = str | int | float | bool | None


def resolve(text: str) -> tuple[Scalar, str]:
    """Return the value of an unquoted word, and why it is ambiguous: a clause that follows the word, "" if all readers agree.

    The value of an ambiguous word is the word itself: the user must quote or rewrite it before it is used.
    """
    if text in _WORDS:
        return _WORDS[text], ""
    first = text[0]
    if first.isdigit() or first in "+-.":
        return _numeric(text)
    if text in _TRUE_FOR_SOME or text in _FALSE_FOR_SOME:
        return text, f"is text here, but YAML 1.1 parsers read it as {'true' if text in _TRUE_FOR_SOME else 'false'}"
    if text in ("=", "<<"):
        return text, "is text here, but has a meaning of its own in YAML 1.1"
    return text, ""


def _numeric(text: str) -> tuple[Scalar, str]:
    if not _NUMERIC.issuperset(text) and text[4:5] != "-":  # most are sizes such as 40Gi: no pattern is tried
        return text, ""
    if re.match(_INTEGER, text):
        whole = int(text, 16 if text.startswith("0x") else 10) if len(text) <= _MAX_NUMBER_LENGTH else _LIMIT
        return (whole, "") if -_LIMIT <= whole < _LIMIT else (text, _TOO_LARGE)
    if re.match(_FLOAT, text):
        number = float(text) if len(text) <= _MAX_NUMBER_LENGTH else float("inf")
        return (text, _TOO_LARGE) if number in (float("inf"), float("-inf")) else (number, "")
    if re.match(_NOT_FINITE, text):
        return text, "is not a number that JSON, and so Kubernetes, can hold"
    if re.match(_DATE, text):
        return text, "is text here, but a date to YAML 1.1 parsers"
    if re.match(_NUMBER_FOR_SOME, text.replace("_", "")) or re.match(_PREFIX_ALONE, text):
        return text, "is ambiguous: some YAML parsers read a number, or another number, others read text"
    return text, ""


_TOO_LARGE = "is too large or too long a number: YAML parsers round it differently"
