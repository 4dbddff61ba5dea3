"""What the node's long tests share with its short ones, and a folder in memory."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.node.conftest import _environment  # noqa: F401


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """In memory: the node's state is synced at each of its changes, tens of thousands of times."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Path(folder)
