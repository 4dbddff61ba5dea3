"""Unpacks archives of our own with every Python that is supported: Debian 12 has 3.11.2, whose tarfile has no filters yet."""

import tarfile
from pathlib import Path
from typing import Literal


def unpack(archive: Path, folder: Path, *, how: Literal["data", "fully_trusted"] = "data") -> None:
    """Write the archive's files into the folder; `how` is the filter, where tarfile has them."""
    with tarfile.open(archive) as opened:
        if hasattr(tarfile, "data_filter"):
            opened.extractall(folder, filter=how)
        else:
            opened.extractall(folder)
