"""What the tests of the command share."""

from pathlib import Path

import pytest

from tests.node.cli.cli_environment import CliEnvironment


@pytest.fixture
def cli_environment(tmp_path: Path) -> CliEnvironment:
    return CliEnvironment(tmp_path)
