"""NVIDIA's own programs: unpacked once into the tests' cache, from the folder that the variable NVIDIA names."""

import functools
import hashlib
from pathlib import Path

from tests.e2e.nvidia import charts
from tests.support import cache, tar

ARCHIVE = "nvidia-binaries.tar.xz"


def programs() -> Path:
    """The folder that holds them. FileNotFoundError where there is no such archive."""
    given = charts.folder()
    if given is None:
        raise FileNotFoundError("set NVIDIA to the folder with NVIDIA's programs")
    archive = given / ARCHIVE
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    return cache.folder(f"nvidia-{digest[:16]}", functools.partial(_unpack, archive))


def _unpack(archive: Path, folder: Path) -> None:
    tar.unpack(archive, folder)
