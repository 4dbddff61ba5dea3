"""Where a run keeps its temporary files: in memory, if it can, for tests write and delete a hundred thousand of them."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SHARED = Path("/dev/shm")
_LEAST = 8 * 1024**3
"""Bytes, of which a run of all suites needs a part. Docker gives 64 MB."""
_NAME = "gpushare-"


@contextmanager
def folder() -> Iterator[Path]:
    """A folder of this process alone, gone afterwards. What killed runs left beside it goes at once."""
    place = _place()
    for left in place.glob(f"{_NAME}[0-9]*-*"):
        if not Path("/proc", left.name.split("-")[1]).exists():
            shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=f"{_NAME}{os.getpid()}-", dir=place) as made:
        # For others too, as /tmp is: some tests run programs as another user.
        Path(made).chmod(0o1777)
        yield Path(made)


def _place() -> Path:
    """The file system in memory that all may write to, if there is one that is large enough and runs programs."""
    usual = Path(tempfile.gettempdir())
    try:
        has = os.statvfs(_SHARED)
    except OSError:
        return usual
    is_fit = has.f_blocks * has.f_frsize >= _LEAST and not has.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return _SHARED if is_fit and os.access(_SHARED, os.W_OK | os.X_OK) else usual
