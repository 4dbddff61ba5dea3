"""Divides a suite's files among machines, so that all of them together run every file once."""

import functools
import json
import re
from pathlib import Path

from tests.support.paths import ROOT

_ONE = re.compile(r"([1-9]\d*)/([1-9]\d*)")


class ShardError(ValueError):
    """The words for a shard are wrong; the text says how."""


def read(text: str) -> tuple[int, int]:
    """`2/3` as numbers. Raises ShardError."""
    found = _ONE.fullmatch(text)
    if found is None or int(found[1]) > int(found[2]):
        raise ShardError(f"SHARD={text} is not N/M with N from 1 to M, such as 1/3")
    return int(found[1]), int(found[2])


def files(folders: tuple[str, ...], shard: tuple[int, int]) -> tuple[str, ...]:
    """The files with tests in the folders that are this shard's, and pytest's options of `folders`; `()` without a file.

    The longest first, each to the shard with the least so far. How long a file takes is in seconds.json, a copy of what a run
    wrote into build/tests/seconds.json; a file without a record counts by its lines.
    """
    number, count = shard
    loads = [0.0] * count
    chosen: list[list[Path]] = [[] for _ in range(count)]
    for path in sorted(tests(folders), key=lambda path: (-_seconds(path), path)):
        least = loads.index(min(loads))
        loads[least] += _seconds(path)
        chosen[least].append(path)
    options = [word for word in folders if word.startswith("-") and not word.startswith("--ignore=")]
    return (*(str(path) for path in sorted(chosen[number - 1])), *options) if chosen[number - 1] else ()


def tests(folders: tuple[str, ...]) -> list[Path]:
    """Every file with tests in the folders; a word may be a file itself."""
    ignored = [Path(word.removeprefix("--ignore=")) for word in folders if word.startswith("--ignore=")]
    roots = [Path(word) for word in folders if not word.startswith("-")]
    found = (path for root in roots for path in ([root] if root.suffix == ".py" else root.rglob("test_*.py")))
    return [path for path in found if not any(path.is_relative_to(folder) for folder in ignored)]


def _seconds(path: Path) -> float:
    recorded = recorded_seconds()
    return recorded.get(str(path)) or _lines(path) * _seconds_of_a_line()


@functools.cache
def recorded_seconds() -> dict[str, float]:
    """How long each file's tests took when somebody measured it."""
    found: dict[str, float] = json.loads(Path(__file__).with_name("seconds.json").read_text(encoding="utf-8"))
    return found


@functools.cache
def _seconds_of_a_line() -> float:
    """What a line of a test takes on average, in the files whose time is known."""
    recorded = recorded_seconds()
    return sum(recorded.values()) / sum(_lines(ROOT / name) for name in recorded)


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
