"""The content of the data files under `profiles/`. Owns `facts.jsonl`, a table of it as JSON by the digest of a file's text.

A file whose text is not in the table, because it was edited after `make docs`, is read as YAML: the table may be out of date
or missing. A test checks that its lines are the content of the files; a start does not. Without the table, a cold compile of a
small intent would read more YAML of ours than of the user's, and JSON takes a twentieth of the time.
"""

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from gpushare.bundle.artifact import hexdigest
from gpushare.core import resources
from gpushare.reading import source


def read(path: Path) -> Any:
    """Return the content of a data file."""
    text = path.read_bytes()
    known = _table().get(hexdigest(text))
    return _by_yaml(text, path) if known is None else json.loads(known)


def table(paths: Iterable[Path]) -> str:
    """Return the text of `facts.jsonl` for these files: one line each, with its digest and its content."""
    return "".join(f"{hexdigest(text)} {_line(_by_yaml(text, path))}\n" for path in paths for text in [path.read_bytes()])


def _line(content: Any) -> str:
    return json.dumps(content, separators=(",", ":"), ensure_ascii=False)


def _by_yaml(text: bytes, path: Path) -> Any:
    return source.read(text, str(path)).data


@cache
def _table() -> dict[str, str]:
    try:
        lines = resources.facts().read_text(encoding="utf-8").split("\n")
    except FileNotFoundError:
        return {}
    return {line[:64]: line[65:] for line in lines}
