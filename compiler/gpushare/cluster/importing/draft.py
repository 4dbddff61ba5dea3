"""The intent as it is put together: its document, and for each field what it is from.

Owns Draft: values, comments and the parts that findings on a value refer to, all by path.
"""

import re
from typing import Any

from gpushare.cluster.importing.parts import Notes, Part
from gpushare.core.diagnostics import Path

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
