"""Where files that are soon deleted are kept in memory: tests write and delete a hundred thousand of them."""

import os
from pathlib import Path

_SHARED = Path("/dev/shm")
_LEAST = 8 * 1024**3
"""Bytes, of which a run of all suites needs a part. Docker gives 64 MB."""


def folder_for(*, otherwise: Path) -> Path:
    """The file system in memory that all may write to, if this machine has one that is large enough and runs programs."""
    try:
        has = os.statvfs(_SHARED)
    except OSError:
        return otherwise
    is_fit = has.f_blocks * has.f_frsize >= _LEAST and not has.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return _SHARED if is_fit and os.access(_SHARED, os.W_OK | os.X_OK) else otherwise
