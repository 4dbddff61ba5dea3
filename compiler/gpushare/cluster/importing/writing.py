"""A Draft to the text of an intent, with a comment above each field that says what it is from.

The values are written by `core.emit`; the comments are put between its lines. They name objects, not files and lines, so that
the text is the same in whatever order and from whatever files the objects come.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.core import emit
from gpushare.core.diagnostics import Path
from gpushare.core.wording import pluralize
from gpushare.reading import source

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
