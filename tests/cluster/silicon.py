"""The silicon of a cluster's nodes: fake GPUs as the driver, and a device plugin that serves them, on every node."""

import os
import sys
from pathlib import Path

from tests.cluster import machine
from tests.cluster.cluster import Cluster
from tests.cluster.node import Driver, Node
from tests.node.silicon import Silicon, build

_INSIDE = "/run/silicon"
_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


class Fleet:
    """Each node's GPUs. Made before the cluster, whose nodes get them as their driver."""

    def __init__(self, folder: Path, cards: tuple[str, ...]) -> None:
        self.folder = folder
        self.cards = cards
        self.silicon: dict[str, Silicon] = {}
        self.plugins: dict[str, int] = {}

    def driver(self, node: Node) -> Driver:
        """What NVIDIA's runtime would lay into containers on this node."""
        folder = self.folder / node.name
        self.silicon[node.name] = Silicon.make(folder, self.cards)
        return Driver(
            files={_LIBRARY: build.library(), _INSIDE: folder}, environment={"GPUSHARE_SILICON": f"{_INSIDE}/silicon"},
        )

    def start_plugin(self, cluster: Cluster, node: Node) -> None:
        """The device plugin, as a process on the node."""
        environment = {
            **self.silicon[node.name].environment, "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig"),
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, sys.path)]),
        }  # fmt: skip
        command = node.command(sys.executable, "-m", "tests.cluster.plugin", "--node", node.name)
        self.plugins[node.name] = machine.start(command, node.folder / "plugin.log", environment)

    def stop_plugin(self, node: Node) -> None:
        """Its resources go to 0."""
        machine.stop([self.plugins.pop(node.name)], seconds=5)
