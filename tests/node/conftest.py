"""What the node's tests share: the doubles of the worlds outside."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.api_server import ApiServer
from tests.node.silicon import Silicon


@pytest.fixture
def api() -> Iterator[ApiServer]:
    """An API server, listening."""
    with ApiServer() as server:
        yield server


@pytest.fixture
def silicon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Silicon]:
    """Eight idle A100, loaded into this process's pynvml."""
    monkeypatch.setenv("GPUSHARE_SILICON", "")  # so that what `load` sets is undone
    made = Silicon.make(tmp_path)
    made.load()
    yield made
    made.heal()  # calls that still hang come back
