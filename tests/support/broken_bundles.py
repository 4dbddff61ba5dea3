"""Bundles with a fault in one file, at random from a seed: what editors, merges, full disks and other releases leave behind."""

import copy
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import yaml

from tests.support.paths import ROOT

EXAMPLES = ("01-heterogeneous", "05-h100-mig-time-slicing", "12-b200", "13-existing-plugin", "15-argocd", "16-flux")
_ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [None],
    {"a": None},
    2**63,
    ["a"],
    [[1]],
    {"a": [1]},
    "0%",
    "nvidia.com/gpu",
    15,
)
_TEXTS = (".yaml", ".txt", ".md")


def files(example: str) -> dict[str, bytes]:
    """The files of an example's bundle that gpushare reads again."""
    bundle = ROOT / "examples" / example / "bundle"
    return {
        path.relative_to(bundle).as_posix(): path.read_bytes()
        for path in sorted(bundle.rglob("*"))
        if path.is_file() and path.suffix in _TEXTS
    }


def broken(example: str, rng: Random) -> dict[str, bytes]:
    """The bundle with one fault in one of its files."""
    found = files(example)
    names = [name for name in found if name.endswith(".yaml") and "/templates/" not in name]
    name = rng.choice(["intent.yaml", "chart/values.yaml", *names, *names])
    fault = rng.choice((_odd_value, _odd_value, _odd_value, _cut, _without_lines, _conflict, _flipped, _later_field))
    found[name] = fault(found[name], rng)
    return found


def write(files_of: dict[str, bytes], folder: Path) -> Path:
    """Write the files, and return the folder."""
    for name, data in files_of.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def _odd_value(data: bytes, rng: Random) -> bytes:
    document = yaml.safe_load(data)
    places = list(_places(document))
    if not places:
        return b""
    *above, last = rng.choice(places)
    place: Any = document
    for key in above:
        place = place[key]
    place[last] = copy.deepcopy(rng.choice(_ODD))
    return yaml.safe_dump(document, sort_keys=False).encode()


def _later_field(data: bytes, rng: Random) -> bytes:
    document = yaml.safe_load(data)
    document[rng.choice(("of-a-later-release", "spec", "kind"))] = "new"
    return yaml.safe_dump(document, sort_keys=False).encode()


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    below = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in below:
        yield from _places(one, (*path, key))
    if path:
        yield path


def _cut(data: bytes, rng: Random) -> bytes:
    return data[: rng.choice((0, 1, rng.randrange(len(data) + 1)))]


def _without_lines(data: bytes, rng: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    start = rng.randrange(len(lines))
    del lines[start : start + rng.randrange(1, 6)]
    return b"".join(lines)


def _conflict(data: bytes, rng: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines) + 1)
    theirs = b"<<<<<<< HEAD\n" + b"".join(lines[at : at + 2]) + b"=======\n" + b"".join(lines[at : at + 1]) + b">>>>>>> main\n"
    return b"".join([*lines[:at], theirs, *lines[at + 2 :]])


def _flipped(data: bytes, rng: Random) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]
