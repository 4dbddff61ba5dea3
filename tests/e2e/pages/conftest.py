"""What the tests of the pages share with those of the commands that write them."""

from tests.compiler.cluster.live.conftest import api, ask, live

__all__ = ("api", "ask", "live")
