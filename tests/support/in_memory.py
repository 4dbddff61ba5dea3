"""Where a run keeps its temporary files: in memory, if it can, for tests write and delete a hundred thousand of them."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED = Path("/dev/shm")
_LEAST = 8 * 1024**3
"""Bytes, of which a run of all suites needs a part. Docker gives 64 MB."""
_NAME = "gpushare-run-"
_NEW = 60
"""Seconds in which a folder may not be locked yet."""


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this process alone, locked while it is in use, then gone. What killed runs left beside it goes too."""
    place = _place()
    for left in place.glob(f"{_NAME}????????"):
        if _is_left(left):
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=_NAME, dir=place) as made, _opened(Path(made)) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        # For others too, as /tmp is: some tests run programs as another user.
        Path(made).chmod(0o1777)
        yield Path(made)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield lock
    finally:
        os.close(lock)


def _is_left(folder: Path) -> bool:
    """Whether nobody uses it: a lock is known in every container that has the folder, unlike a number of a process."""
    try:
        with _opened(folder) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return os.fstat(lock).st_mtime < time.time() - _NEW
    except OSError:
        return False


def _place() -> Path:
    """The file system in memory that all may write to, if there is one that is large enough and runs programs."""
    usual = Path(tempfile.gettempdir())
    try:
        has = os.statvfs(_SHARED)
    except OSError:
        return usual
    is_fit = has.f_blocks * has.f_frsize >= _LEAST and not has.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return _SHARED if is_fit and os.access(_SHARED, os.W_OK | os.X_OK) else usual
