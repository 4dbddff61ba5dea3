"""Divides a suite's files among machines, so that all of them together run every file once."""

import re
from pathlib import Path

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
    """The files with tests in the folders that are this shard's. `folders` may hold pytest's `--ignore` options.

    The longest files first, each to the shard with the least so far: a line of a test file is the only weight that needs no
    record of former runs.
    """
    number, count = shard
    loads = [0] * count
    chosen: list[list[Path]] = [[] for _ in range(count)]
    for path in sorted(tests(folders), key=lambda path: (-_lines(path), path)):
        least = loads.index(min(loads))
        loads[least] += _lines(path)
        chosen[least].append(path)
    return tuple(str(path) for path in sorted(chosen[number - 1]))


def tests(folders: tuple[str, ...]) -> list[Path]:
    """Every file with tests in the folders."""
    ignored = [Path(word.removeprefix("--ignore=")) for word in folders if word.startswith("--ignore=")]
    found = (path for word in folders if not word.startswith("-") for path in Path(word).rglob("test_*.py"))
    return [path for path in found if not any(path.is_relative_to(folder) for folder in ignored)]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())
