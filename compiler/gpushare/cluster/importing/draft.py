"""The intent as it is put together: its document, for each field what it is from, and its text with that as comments.

Owns Draft: values, comments and the parts that findings on a value refer to, all by path. The values are written by
`core.emit`; the comments are put between its lines. They name objects, not files and lines, so that the text is the same in
whatever order and from whatever files the objects come.
"""

import re
from collections.abc import Mapping
from typing import Any

from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core import emit
from gpushare.core.diagnostics import Path
from gpushare.core.wording import pluralize
from gpushare.reading import source

MAX_NAME = 48
MAX_POOLS = 1000
"""As many as an intent may have."""
_OTHER = r"[^a-z0-9]+"


class Draft:
    """An intent in the making."""

    def __init__(self) -> None:
        self.spec: dict[str, Any] = {}
        self.comments: dict[Path, str] = {}
        self.parts: dict[Path, Part] = {}
        self.pools: dict[str, dict[str, Any]] = {}
        self.resources: dict[str, list[tuple[str, str | None]]] = {}
        self.first: Part | None = None

    def has_room(self, part: Part, notes: Notes) -> bool:
        """Whether one more pool may be added; a finding says if not."""
        if len(self.pools) < MAX_POOLS:
            return True
        notes.error("GS866", part, f"more than {MAX_POOLS} pools: the others are left out", "import a part of the cluster")
        return False

    def put(self, path: Path, value: Any, part: Part | None = None, comment: str = "") -> None:
        """Set a field of the spec, with what it is from."""
        room: Any = self.spec
        for step in path[:-1]:
            room = room.setdefault(step, {})
        room[path[-1]] = value
        self.note(path, part, comment)

    def note(self, path: Path, part: Part | None, comment: str = "") -> None:
        """Say what a field of the spec is from."""
        if part is not None:
            self.parts[path] = part
        if comment:
            self.comments[path] = f"{self.comments[path]}\n{comment}" if path in self.comments else comment

    def add(self, wanted: str, document: dict[str, Any], part: Part) -> Path:
        """Add a pool under the name or one like it, and return its path in the spec."""
        name = unique(label(wanted), self.pools)
        self.pools[name] = document
        path = ("pools", name)
        self.parts[path] = part
        return path

    def offer(self, resource: str, pool: Path, profile: str | None) -> None:
        """Say that a pool offers a resource; `profile` is what a quota of the pool calls it, None if it needs no name."""
        offers = self.resources.setdefault(resource, [])
        if (str(pool[-1]), profile) not in offers:
            offers.append((str(pool[-1]), profile))

    def part_at(self, path: Path) -> Part | None:
        """Return what the field at the path of the whole document, or the nearest one around it, is from."""
        steps = path[1:] if path[:1] == ("spec",) else path
        while steps:
            if steps in self.parts:
                return self.parts[steps]
            steps = steps[:-1]
        return self.first


def label(text: str) -> str:
    """Return the text as a DNS label that a pool may have as its name."""
    return re.sub(_OTHER, "-", text[: MAX_NAME * 4].lower()).strip("-")[:MAX_NAME].strip("-") or "pool"


def unique(name: str, taken: dict[str, Any]) -> str:
    """Return the name, with a number if it is taken."""
    number, candidate = 1, name
    while candidate in taken:
        number += 1
        candidate = f"{name[: MAX_NAME - 6]}-{number}"
    return candidate


_KEYS = (
    "kubernetes",
    "namespace",
    "adoption",
    "accept",
    "admission",
    "gitops",
    "platform",
    "monitoring",
    "cards",
    "prices",
    "pools",
    "quotas",
)
_HEADER = """Written by `gpushare import` from what a cluster has.
The comments say where each value is from, and what is assumed."""


def text(name: str, spec: Mapping[str, Any], comments: Mapping[Path, str], errors: int) -> str:
    """Return the intent; with errors, its header says that it is not complete."""
    document = {
        "apiVersion": "gpushare.dev/v1",
        "kind": "ClusterIntent",
        "metadata": {"name": name},
        "spec": {key: _sorted(key, spec[key]) for key in _KEYS if key in spec},
    }
    draft = f"NOT COMPLETE: {pluralize(errors, 'error')}; the parts that they concern are missing or wrong.\n" if errors else ""
    written = emit.yaml_text(document, draft + _HEADER)
    return _commented(written, {("spec", *path): origin for path, origin in comments.items()})


def _sorted(key: str, value: Any) -> Any:
    if key in ("pools", "quotas"):
        return {
            name: (_sorted("quotas", value[name]) if key == "quotas" and isinstance(value[name], dict) else value[name])
            for name in sorted(value)
        }
    return value


def _commented(written: str, comments: Mapping[Path, str]) -> str:
    read = source.read(written.encode(), "", own=True)
    above: dict[int, list[str]] = {}
    for path, origin in sorted(comments.items(), key=lambda entry: tuple(map(str, entry[0]))):
        start = read.key_offset(path)
        if start is not None:
            above.setdefault(read.line_of(start), []).extend(map(_harmless, origin.split("\n")))
    lines = []
    for number, line in enumerate(written.split("\n"), 1):
        indent = " " * (len(line) - len(line.lstrip(" ")))
        lines += [f"{indent}# {origin}" for origin in above.get(number, ())]
        lines.append(line)
    return "\n".join(lines)


def _harmless(origin: str) -> str:
    """Return the words of a comment with whatever a reader of YAML could take for a line's end escaped."""
    return (
        origin
        if origin.isprintable()
        else "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in origin)
    )
