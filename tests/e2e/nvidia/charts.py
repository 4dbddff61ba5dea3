"""NVIDIA's own charts, from archives in the folder that the variable NVIDIA names, and what their templates read."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

from gpushare.facts.catalog.upstream import version_order
from tests.support import tar

ARCHIVES = {name: f"chart-{name}-*.tar.*" for name in ("gpu-operator", "nvidia-device-plugin", "dra-driver-nvidia-gpu")}

_COMMENT = re.compile(r"\{\{-?\s*/\*.*?\*/\s*-?\}\}", re.DOTALL)
_READ = re.compile(r"(toYaml\s+|with\s+|range\s+(?:[^}]*:=\s*)?)?\$?(?:\.\w+)?\.Values\.([A-Za-z0-9_.]+)")


def folder() -> Path | None:
    """Where the charts are; None where nobody said it."""
    told = os.environ.get("NVIDIA")
    return Path(told) if told else None


def archives(name: str) -> list[tuple[str, Path]]:
    """(version, archive) of every release in the folder, the newest first. Raises FileNotFoundError where there is none."""
    given = folder()
    if given is None:
        raise FileNotFoundError("set NVIDIA to the folder with NVIDIA's charts")
    prefix = f"chart-{name}-"
    found = [(path.name.removeprefix(prefix).partition(".tar.")[0], path) for path in given.glob(ARCHIVES[name])]
    if not found:
        raise FileNotFoundError(f"{given} has no {ARCHIVES[name]}")
    return sorted(found, key=lambda one: version_order(one[0]), reverse=True)


def unpack(name: str, into: Path) -> Path:
    """The newest chart as a folder. Raises FileNotFoundError where the archive is missing."""
    return unpacked(archives(name)[0][1], into)


def unpacked(archive: Path, into: Path) -> Path:
    """A chart as a folder."""
    tar.unpack(archive, into)
    return next(into.glob("*/Chart.yaml")).parent


def templates(chart: Path) -> Iterator[str]:
    """The texts of the chart's own templates, comments left out."""
    for file in sorted((chart / "templates").rglob("*")):
        if file.suffix in (".tpl", ".yaml", ".yml", ".txt"):
            yield _COMMENT.sub("", file.read_text(encoding="utf-8"))


def read_paths(chart: Path) -> tuple[frozenset[str], frozenset[str]]:
    """(the paths of values that the templates name, those of them that they print whole)."""
    found = [match for text in templates(chart) for match in _READ.findall(text)]
    return frozenset(path.rstrip(".") for _, path in found), frozenset(path.rstrip(".") for whole, path in found if whole)
