"""The MPS daemon of a node's shared GPUs, which the tests' own plugin starts: its server, for a test."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.cluster.cluster_fixture import ClusterFixture
from tests.e2e.cluster.machine import is_running


class Daemon:
    """The daemon of one node. Its pipe directory holds what `mps_control` reads."""

    def __init__(self, cluster_fixture: ClusterFixture, node: str) -> None:
        self._lab = cluster_fixture
        self._node = node
        self._pipe = cluster_fixture.node(node).path("/run/nvidia/mps/nvidia.com/gpu.shared/pipe")

    @property
    def server(self) -> int:
        """Its server, as NVIDIA's root's and of no tenant's pod."""
        return int((self._pipe / "server").read_text())

    def serves(self) -> bool:
        """Whether the server runs."""
        return is_running(self.server)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Within the block the server does not end, whoever asks it to."""
        pid = self.server
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
