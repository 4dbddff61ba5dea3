"""The label of a node that names its config, as a watch tells of it, which is how NVIDIA's config manager knows it."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.cluster import proxy
from tests.e2e.cluster.machine import MachineError

LABEL = "nvidia.com/device-plugin.config"


class WatchedLabel(threading.Thread):
    """`value`: what was told last, None until something was. `has_changed` is set with each."""

    def __init__(self, node: str, socket: Path) -> None:
        super().__init__(daemon=True)
        self._node = node
        self._socket = socket
        self.value: str | None = None
        self.has_changed = threading.Event()

    def run(self) -> None:
        """Watch, and watch again when the API server has ended the watch or is away."""
        while True:
            try:
                for node in self._states():
                    self._take(node)
            except MachineError:
                time.sleep(0.5)

    def _states(self) -> Iterator[Any]:
        """The node as it is, then after each change."""
        name = f"metadata.name={self._node}"
        for event in proxy.watch(self._socket, "/api/v1/nodes", fieldSelector=name):
            if event["type"] in ("ADDED", "MODIFIED"):
                yield event["object"]

    def _take(self, node: Any) -> None:
        value = str(node["metadata"]["labels"].get(LABEL, ""))
        if value != self.value:
            self.value = value
            self.has_changed.set()
