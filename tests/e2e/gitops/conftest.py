"""Each tool has a cluster, and its tests run there in their order; the two clusters may run beside each other."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a tool in one process of pytest-xdist."""
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.xdist_group(item.path.relative_to(HERE).parts[0]))
