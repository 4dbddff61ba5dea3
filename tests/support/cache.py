"""The tests' cache outside the repository: folders that take long to make, made once, by any number of processes at a time."""

import fcntl
import os
import shutil
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
        with (made.parent / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.is_dir():
                # Under the lock's name: what a killed process left of it is found again, and goes.
                content = made.parent / f"{name}.filling"
                shutil.rmtree(content, ignore_errors=True)
                content.mkdir()
                try:
                    fill(content)
                    content.rename(made)
                finally:
                    shutil.rmtree(content, ignore_errors=True)
    return made
