"""What the node's long tests share with its short ones."""

from tests.node.conftest import _environment  # noqa: F401
