"""The MPS daemon of a node's shared GPUs, which the tests' own plugin starts: its clients and its server, for a test."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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

    def connect(self, *tenants: str) -> None:
        """Make these tenants clients of it."""
        (self._pipe / "clients").write_text("\n".join(str(pid) for name in tenants for pid in self.pids(name)))

    def terminated(self) -> list[int]:
        """The clients that it was asked to end, and did."""
        file = self._pipe / "terminated"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def pids(self, name: str, where: str = "course") -> list[int]:
        """The processes of a pod's container, as the machine counts them."""
        uid = self._lab.cluster.get("pod", name, "--namespace", where)["metadata"]["uid"]
        found = []
        for pid in self._lab.node(self._node).cgroup.processes():
            cgroups, program = Path(f"/proc/{pid}/cgroup"), Path(f"/proc/{pid}/cmdline")
            if uid in cgroups.read_text() and program.read_bytes().startswith(b"/tenant"):
                found.append(pid)
        return found
