"""The figures of `make bench` over time: one line of JSON for each run, in docs/bench-history.jsonl."""

import datetime
import json
import os
import platform
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from tests.support.paths import ROOT

HISTORY = Path("docs", "bench-history.jsonl")


class Line(NamedTuple):
    """What a benchmark tells people, and the figures in it that are compared over time: ratios and counts, each by a name."""

    text: str
    figures: Mapping[str, float] = MappingProxyType({})


def tell(lines: Iterable[Line]) -> dict[str, float]:
    """Print each line as it comes; all their figures."""
    told: dict[str, float] = {}
    for line in lines:
        print(line.text, flush=True)
        assert not told.keys() & line.figures.keys(), f"two figures have one name: {sorted(told.keys() & line.figures.keys())}"
        told |= line.figures
    return told


def append(figures: Mapping[str, float], root: Path = ROOT) -> None:
    """One more run in the file."""
    run = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": commit(root),
        "machine": {"cores": len(os.sched_getaffinity(0)), "cpu": cpu(), "python": platform.python_version()},
        "figures": {name: float(f"{value:.3g}") for name, value in figures.items()},
    }
    with (root / HISTORY).open("a", encoding="utf-8") as file:
        print(json.dumps(run), file=file)


def commit(root: Path) -> str:
    """The commit that was measured, and whether anything but the history differs from it."""

    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", f":!{HISTORY}")
    return git("rev-parse", "--short=12", "HEAD") + ("+dirty" if changed else "")


def cpu() -> str:
    """The model, where the kernel tells one."""
    found = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    return found[1] if found else platform.machine()
