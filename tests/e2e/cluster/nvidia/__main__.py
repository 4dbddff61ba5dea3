"""`python -m tests.e2e.cluster.nvidia …`: what NVIDIA's DaemonSets run on a node, GPUSHARE_FAKE_NVML given.

Stands for kubelet alone: keeps the folder of configs in step with the ConfigMap, as a projected volume is, and starts again
what has exited. The MPS control daemon runs where feature discovery calls the node capable of MPS.
"""

import argparse
import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from tests.e2e.cluster import mps_control
from tests.e2e.cluster.machine import MachineError
from tests.e2e.cluster.nvidia.pod import Place, Pod
from tests.e2e.cluster.proxy import read

_MPS = "/run/nvidia/mps"
_CAPABLE = "nvidia.com/mps.capable=true"
_END_SECONDS = 30.0
"""Kubelet's grace. The MPS control daemon takes as long as its servers."""


class Node:
    """NVIDIA's pods of one node."""

    def __init__(self, place: Place, proxy: Path, namespace: str) -> None:
        self._place = place
        self._path = f"/api/v1/namespaces/{namespace}/configmaps/gpushare-profiles"
        self._proxy = proxy
        self._features = place.folder / "features"
        self._plugin = Pod(
            place,
            "nvidia-device-plugin",
            DEVICE_DISCOVERY_STRATEGY="nvml",
            PASS_DEVICE_SPECS="false",
            DEVICE_LIST_STRATEGY="envvar",
            NVIDIA_DRIVER_ROOT="/",
            FAIL_ON_INIT_ERROR="true",
            MPS_ROOT=_MPS,
        )
        self._discovery = Pod(
            place,
            "gpu-feature-discovery",
            DEVICE_DISCOVERY_STRATEGY="nvml",
            GFD_USE_NODE_FEATURE_API="false",
            GFD_OUTPUT_FILE=str(self._features),
        )
        self._mps = Pod(place, "mps-control-daemon", DEVICE_DISCOVERY_STRATEGY="nvml", MPS_ROOT=_MPS)

    def run(self) -> None:
        """Until the process is ended."""
        self._place.configs.mkdir(exist_ok=True)
        _write_minors()
        while True:
            self._project()
            self._plugin.keep()
            self._discovery.keep()
            if self._features.is_file() and _CAPABLE in self._features.read_text():
                self._mps.keep()
            else:
                self._end_mps(_END_SECONDS)
            time.sleep(0.1)

    def end(self) -> None:
        """As a node's end takes them."""
        for pod in (self._plugin, self._discovery):
            pod.end(0.5)
        self._end_mps(0.5)

    def _end_mps(self, seconds: float) -> None:
        self._mps.end(seconds)
        mps_control.end_servers(Path(_MPS))

    def _project(self) -> None:
        try:
            found: dict[str, Any] | None = json.loads(read(self._proxy, self._path) or "null")
        except MachineError:
            return
        # A volume stays as it is when its ConfigMap is deleted.
        wanted = found.get("data", {}) if found else None
        if wanted is None:
            return
        for path in self._place.configs.iterdir():
            if path.name not in wanted:
                path.unlink()
        for name, text in wanted.items():
            path = self._place.configs / name
            if not path.is_file() or path.read_text() != text:
                path.write_text(text)


def _write_minors() -> None:
    """Which device file is whose capability: the plugin looks for every MIG device it finds."""
    names = ["config", "monitor"]
    for gpu in range(8):
        for gi in range(16):
            names.append(f"gpu{gpu}/gi{gi}/access")
            names += [f"gpu{gpu}/gi{gi}/ci{ci}/access" for ci in range(8)]
    folder = Path("/proc/driver/nvidia-caps")
    folder.mkdir()
    (folder / "mig-minors").write_text("".join(f"{name} {number}\n" for number, name in enumerate(names, start=1)))


parser = argparse.ArgumentParser(prog="python -m tests.e2e.cluster.nvidia")
for name in ("--cluster", "--node"):
    parser.add_argument(name, required=True)
for name in ("--folder", "--programs", "--proxy", "--kubeconfig"):
    parser.add_argument(name, type=Path, required=True)
parser.add_argument("--namespace", default="gpu-system")
chosen = parser.parse_args()
node = Node(
    Place(
        programs=chosen.programs,
        folder=chosen.folder,
        configs=chosen.folder / "configs",
        node=chosen.node,
        kubeconfig=chosen.kubeconfig,
        prefix=f"{chosen.cluster}-{chosen.node}-",
    ),
    chosen.proxy,
    chosen.namespace,
)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
try:
    node.run()
finally:
    node.end()
