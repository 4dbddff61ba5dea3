"""What the tests of the command share."""

from pathlib import Path

import pytest

from tests.node.cli.desk import Desk


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)
