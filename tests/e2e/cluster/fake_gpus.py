"""The GPUs of a cluster's nodes: fake GPUs as the driver, and a device plugin that serves them, on every node."""

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.e2e.cluster import machine, mps_control
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.node import Driver, Node
from tests.e2e.cluster.nvidia import start
from tests.support.fake_nvml import FakeNvml, build
from tests.support.paths import ROOT

_STATE = "/dev/nvidia-fake-nvml"
"""Where a driver's device would lie: by that a process is known to use a GPU."""

_LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"


class Fleet:
    """Each node's GPUs. Made before the cluster, whose nodes get them as their driver."""

    def __init__(self, folder: Path, cards: tuple[str, ...]) -> None:
        self.folder = folder
        self.cards = cards
        self.fake_nvml: dict[str, FakeNvml] = {}
        self.plugins: dict[str, int] = {}
        self.nodes_of_nvidia: set[str] = set()
        """Where NVIDIA's own programs run in place of the tests' own plugin."""

    def driver(self, node: Node) -> Driver:
        """What NVIDIA's runtime would lay into containers on this node, which gets the cards of all nodes."""
        self.equip(node, self.cards)
        return self.files(node.name)

    def files(self, node: str) -> Driver:
        """The same, of whatever GPUs the node of that name has."""
        mps = mps_control.write_program(self.folder)
        files = {_LIBRARY: build.library(), _STATE: self.folder / node / "fake-nvml", mps_control.INSIDE: mps}
        return Driver(files=files, environment={"GPUSHARE_FAKE_NVML": _STATE})

    def equip(self, node: Node, cards: Sequence[str]) -> FakeNvml:
        """Put these cards into the node, new and idle. Nobody may be using the former ones."""
        number = int(node.name.rpartition("-")[2])
        self.fake_nvml[node.name] = FakeNvml.make(self.folder / node.name, cards, node=number)
        return self.fake_nvml[node.name]

    def start_plugin(self, cluster: Cluster, node: Node, *arguments: str) -> None:
        """The device plugin, as a process on the node; arguments are for the tests' own."""
        driver = node.folder / "driver"
        mps_control.write_driver(driver, self.fake_nvml[node.name])
        environment = {
            **self.fake_nvml[node.name].environment,
            "PATH": f"{driver}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)]),
        }
        if node.name in self.nodes_of_nvidia:
            command = start.command(cluster, node)
        else:
            command = node.command(
                sys.executable,
                "-m",
                "tests.e2e.cluster.plugin",
                "--node",
                node.name,
                "--proxy",
                cluster.control_plane.proxy,
                *arguments,
            )
        self.plugins[node.name] = machine.start(command, node.folder / "plugin.log", environment)

    def stop_plugin(self, node: Node) -> None:
        """Its resources go to 0. Nothing happens where none runs, such as beside AMD's GPUs."""
        pid = self.plugins.pop(node.name, None)
        machine.stop([] if pid is None else [pid], seconds=30)
