"""Changes fields of pools in the text of an intent: only the characters of what changes, found by their positions.

A YAML library that reads and writes a document again keeps comments, but not every space and quote; here no other line can
change. The new text is read again: unless it says exactly what was meant, for every pool, nothing is returned.
"""

import codecs
import difflib
import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gpushare.core.diagnostics import HintedError
from gpushare.core.wording import join_first
from gpushare.reading import overlay, source
from gpushare.reading.source import Source
from gpushare.reading.tree import TreeNode, resolve

Document = Mapping[str, Any]

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]*\Z")
_REST_OF_ENTRY = re.compile(r"[ \t]*,?(?:[ \t]*(?:#[^\r\n]*)?(\r\n|\r|\n))?")
_BREAK = re.compile(r"\r\n|\r|\n|\Z")


class UnpatchableError(HintedError):
    """The text cannot be changed without changing something else; the hint is what to write by hand."""


def patched(data: bytes, file: str, changes: Mapping[str, Document], overlays: Sequence[tuple[bytes, str]] = ()) -> bytes:
    """Return the intent's bytes with other fields of pools: pool → field → its whole new value.

    The intent, with its overlays, has no errors. UnpatchableError if a value that changes is written for several pools at once,
    or if an overlay decides it.
    """
    base, others = source.read(data, file), [source.read(*one) for one in overlays]
    before = _data(base, others)
    meant, hint = _changed(before, changes), by_hand(before, changes)
    editor = _Editor(base)
    for pool in changes:
        node = _find(base, pool)
        if node is None:
            raise UnpatchableError(f"{file} cannot be patched: pool {pool} is not in it, but in an overlay", hint)
        if not editor.change(node, before["spec"]["pools"][pool], meant["spec"]["pools"][pool]):
            raise UnpatchableError(
                f"{file} cannot be patched: what changes in pool {pool} repeats the value of an anchor", hint
            )
    text = editor.text()
    after = source.read(text.encode(), file)
    if after.findings or _changed(after.data, dict.fromkeys(changes, None)) != _changed(
        base.data, dict.fromkeys(changes, None)
    ):
        raise UnpatchableError(
            f"{file} cannot be patched: aliases repeat what changes in pool {join_first(list(changes))}", hint
        )
    if _data(after, others) != meant:
        names = join_first([name for _, name in overlays])
        raise UnpatchableError(f"{file} cannot be patched: {names or 'its own text'} decides what changes", hint)
    return (codecs.BOM_UTF8 if data.startswith(codecs.BOM_UTF8) else b"") + text.encode()


def _changed(document: Document, changes: Mapping[str, Document | None]) -> Document:
    """Return the document with other fields of these pools; without pools for which there are none."""
    pools = dict(document["spec"]["pools"])
    for pool, fields in changes.items():
        if fields is None:
            pools.pop(pool, None)
        else:
            pools[pool] = {**pools[pool], **fields}
    return {**document, "spec": {**document["spec"], "pools": pools}}


def difference(before: bytes, after: bytes, file: str) -> str:
    """Return the unified diff of two texts of the intent; empty if they are the same."""
    old, new = (data.decode("utf-8-sig").splitlines() for data in (before, after))
    return "".join(f"{line}\n" for line in difflib.unified_diff(old, new, f"a/{file}", f"b/{file}", lineterm=""))


def by_hand(before: Document, changes: Mapping[str, Document]) -> str:
    """Return what to write in place of what is there, on one line."""
    pools = before["spec"]["pools"]
    changed = (
        f"{pool}: {{{', '.join(f'{key}: {_flow(value)}' for key, value in fields.items() if pools[pool].get(key) != value)}}}"
        for pool, fields in changes.items()
    )
    return f"write in spec.pools {', '.join(changed)}"


def _data(base: Source, overlays: Sequence[Source]) -> Any:
    return (overlay.merge([base, *overlays]) if overlays else base).data


def _find(base: Source, pool: str) -> TreeNode | None:
    node = base.root
    for key in ("spec", "pools", pool):
        children = node.children if node else None
        node = children[key][2] if isinstance(children, dict) and key in children else None
    return node


class _Editor:
    """The changes of one text: characters to replace."""

    def __init__(self, base: Source) -> None:
        self._base, self._text = base, base.text
        self._edits: list[tuple[int, int, str]] = []
        found = _BREAK.search(base.text)
        self._break = (found and found[0]) or "\n"

    def text(self) -> str:
        """Return the text with all changes."""
        text = self._text
        for start, end, new in sorted(self._edits, reverse=True):
            text = text[:start] + new + text[end:]
        return text

    def change(self, node: TreeNode, old: Document, new: Document) -> bool:
        """Change the entries of a mapping that differ. Return False if the text has an alias in its place.

        What the text does not have is another file's: that is noticed when the result is read.
        """
        children = node.children
        if not isinstance(children, dict) or self._text.startswith("*", node.start):
            return False
        gone = [key for key in children if key in old and key not in new]
        kept = [key for key in children if key not in gone]
        if not kept:
            self._replace(node, new)
            return True
        self._remove(node, gone)
        added = []
        for key, value in new.items():
            child = children[key][2] if key in children else None
            if key in old and old[key] == value:
                continue
            if child is None:
                added.append(f"{_flow(key)}: {_flow(value)}")
            elif isinstance(value, Mapping) and isinstance(old.get(key), Mapping):
                if not self.change(child, old[key], value):
                    return False
            else:
                self._replace(child, value)
        if added:
            self._add(node, children[kept[0]][0], children[kept[-1]][2].end, added)
        return True

    def _replace(self, node: TreeNode, value: Any) -> None:
        """Put a value in the place of another, in the same quotes."""
        written = self._text[node.start : node.end]
        quote = written[:1] if written[:1] in {"'", '"'} and isinstance(value, str) else ""
        self._edits.append((node.start, node.end, f"{quote}{value}{quote}" if quote else _flow(value)))

    def _add(self, node: TreeNode, first: int, last: int, entries: list[str]) -> None:
        """Add entries behind the last that stays, which ends at `last`; the first begins at `first`."""
        if self._text.startswith("{", node.start):
            self._edits.append((last, last, "".join(f", {entry}" for entry in entries)))
            return
        indent = " " * (first - self._start_of_line(first))
        end = self._end_of_line(last)
        self._edits.append((end, end, "".join(f"{self._break}{indent}{entry}" for entry in entries)))

    def _remove(self, node: TreeNode, gone: list[str]) -> None:
        """Remove entries; in block style with their lines, in flow style with one of the commas beside them."""
        children = node.children if isinstance(node.children, dict) else {}
        if not self._text.startswith("{", node.start):
            for start, _, child in (children[key] for key in gone):
                self._edits.append((self._start_of_line(start), self._behind_line(child.end), ""))
            return
        entries = list(children.items())
        for is_gone, run in groupby(range(len(entries)), key=lambda number: entries[number][0] in gone):
            numbers = list(run)
            if not is_gone:
                continue
            start, end = entries[numbers[0]][1][0], entries[numbers[-1]][1][2].end
            line = self._start_of_line(start)
            if numbers[-1] + 1 < len(entries):
                self._edits.append((start, entries[numbers[-1] + 1][1][0], ""))
            elif self._text[line:start].strip():
                self._edits.append((entries[numbers[0] - 1][1][2].end, end, ""))
            else:
                rest = _REST_OF_ENTRY.match(self._text, end)
                has_line = rest is not None and rest[1] is not None
                self._edits.append((line if has_line else start, rest.end() if rest else end, ""))

    def _start_of_line(self, offset: int) -> int:
        return max(self._text.rfind("\n", 0, offset), self._text.rfind("\r", 0, offset)) + 1

    def _end_of_line(self, offset: int) -> int:
        found = _BREAK.search(self._text, offset)
        return found.start() if found else len(self._text)

    def _behind_line(self, offset: int) -> int:
        found = _BREAK.search(self._text, offset)
        return found.end() if found else len(self._text)


def _flow(value: Any) -> str:
    """Return the value in flow style, on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_flow(key)}: {_flow(one)}" for key, one in value.items()) + "}"
    if isinstance(value, str):
        return value if _PLAIN.match(value) and resolve(value) == (value, "") else json.dumps(value, ensure_ascii=False)
    return json.dumps(value)
