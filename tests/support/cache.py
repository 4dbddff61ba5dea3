"""The tests' cache outside the repository: folders that take long to make, made once, by any number of processes at a time."""

import fcntl
import os
import tempfile
from collections.abc import Callable
from pathlib import Path


def root() -> Path:
    """Where it lies; GPUSHARE_TEST_CACHE moves it."""
    own = os.environ.get("GPUSHARE_TEST_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "gpushare-tests"


def folder(name: str, fill: Callable[[Path], object]) -> Path:
    """The folder of that name, which must tell its content by a digest. Whoever comes first fills it; it appears whole."""
    made = root() / name
    if not made.is_dir():
        made.parent.mkdir(parents=True, exist_ok=True)
        with (made.parent / f"{name}.lock").open("w") as lock, tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_dir():
                content = Path(scratch) / "content"
                content.mkdir()
                fill(content)
                content.rename(made)
    return made
