"""The schema of a chart's values at each release: that of the newest chart, and backwards what each older one has otherwise.

Owns the form of `profiles/upstream/<chart>.releases.json`: release → changes from the next newer release there to this one, the
newest first. A change is [keys] for what is not there, and [keys, value] for what is. `make upstream` writes it by `changes`.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from typing import Any

from gpushare.core import resources

Change = Sequence[Any]
Tree = dict[str, Any]


def schema_at(name: str, newest: Mapping[str, Any], release: str) -> Tree:
    """Return the schema of a release that `charted` names. Raises KeyError for another."""
    found: Tree = deepcopy(dict(newest))
    for older, changed in _table(name).items():
        for change in changed:
            _apply(found, change)
        if older == release:
            return found
    raise KeyError(release)


def charted(name: str) -> tuple[str, ...]:
    """Return the releases before the newest whose charts were read, the newest first."""
    return tuple(_table(name))


def changes(before: Mapping[str, Any], after: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[Change]:
    """Yield what turns one schema into another, in the order of the keys."""
    for key in sorted(before.keys() | after.keys()):
        path = (*above, key)
        if key not in after:
            yield [list(path)]
        elif key in before and isinstance(before[key], dict) and isinstance(after[key], dict):
            yield from changes(before[key], after[key], path)
        elif key not in before or before[key] != after[key] or type(before[key]) is not type(after[key]):
            yield [list(path), after[key]]


def _apply(tree: Tree, change: Change) -> None:
    (*above, last), *values = change
    for key in above:
        tree = tree[key]
    if values:
        tree[last] = deepcopy(values[0])
    else:
        del tree[last]


def text(table: Mapping[str, Sequence[Change]]) -> str:
    """Return the file's text: one change a line."""
    blocks = []
    for release, changed in table.items():
        lines = ",\n".join(f"    {json.dumps(change, ensure_ascii=False)}" for change in changed)
        blocks.append(f"  {json.dumps(release)}: [\n{lines}\n  ]" if lines else f"  {json.dumps(release)}: []")
    return "{\n" + ",\n".join(blocks) + "\n}\n"


@cache
def _table(name: str) -> Mapping[str, Sequence[Change]]:
    path = resources.upstream() / f"{name}.releases.json"
    table: Mapping[str, Sequence[Change]] = json.loads(path.read_text(encoding="utf-8"))
    return table
