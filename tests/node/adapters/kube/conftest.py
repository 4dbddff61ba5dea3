"""What the tests of the API server's client share."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.adapters.kube.connection import Connection
from tests.node.adapters.kube.kube_fixture import FakeClock, connect
from tests.support.fake_api.server import ApiServer


@pytest.fixture
def connection(api: ApiServer, tmp_path: Path, clock: FakeClock) -> Iterator[Connection]:
    made = connect(api, tmp_path, clock)
    yield made
    made.close()
