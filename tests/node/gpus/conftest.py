"""What the tests of GPUs share."""

from pathlib import Path

import pytest

from tests.node.gpus.gpu_node import GpuNode


@pytest.fixture
def node(tmp_path: Path) -> GpuNode:
    return GpuNode(tmp_path)
