"""What the data files under `profiles/` say. Owns `facts.jsonl`, a table of them as JSON by the digest of their text.

A file whose text is not in the table, because it was edited after `make docs`, is read as the YAML that it is: the table can
be behind or missing. That its lines are what the files say is tested, not checked at each start. A cold compile of a small
intent would read more YAML of ours than of the user's, and JSON takes a twentieth of the time.
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
    """The content of a data file."""
    text = path.read_bytes()
    known = _table().get(hexdigest(text))
    return _by_yaml(text, path) if known is None else json.loads(known)


def table(paths: Iterable[Path]) -> str:
    """The text of `facts.jsonl` for these files: a line for each, its digest and its content."""
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
