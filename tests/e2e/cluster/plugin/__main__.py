"""`python -m tests.e2e.cluster.plugin --node NAME --proxy SOCKET`: runs on a node, GPUSHARE_FAKE_NVML given.

Follows k8s-device-plugin v0.20.0 in what others depend on: at every start the default config first and the label's a moment
later; only a changed label makes it read config and hardware anew; a key that the ConfigMap does not have leaves the old
offer; a restarted kubelet is registered with again; what is shared by MPS is offered when its daemon answers.

With `--mounted` it starts as a pod that mounts the ConfigMap: not without it. With an empty `--config-map` it has no configs.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import yaml

from tests.e2e.cluster.machine import MachineError
from tests.e2e.cluster.plugin.label import WatchedLabel
from tests.e2e.cluster.plugin.mps import Daemons
from tests.e2e.cluster.plugin.offer import ConfigError, Gpu, Offer, offers
from tests.e2e.cluster.plugin.server import KUBELET, Resource
from tests.e2e.cluster.proxy import read

_LOOK_SECONDS = 0.25


class Plugin:
    """The plugin of one node."""

    def __init__(self, node: str, configs: str, proxy: Path) -> None:
        self.node = node
        self.configs = configs
        self.proxy = proxy
        self.label = ""
        self.watched = WatchedLabel(node, proxy)
        self.resources: dict[str, Resource] = {}
        self.daemons = Daemons()
        self.kubelet: int | None = None

    def await_configs(self) -> None:
        """As kubelet does before it starts the containers of a pod that mounts them."""
        while not self.read(self.configs):
            print("there is no ConfigMap to mount", flush=True)
            time.sleep(_LOOK_SECONDS)  # kubelet tries the mount again

    def run(self) -> None:
        """Until the process is ended. Without kubelet it begins anew, as NVIDIA's container does when it has exited."""
        self.watched.start()
        while True:
            try:
                self._serve(_wanted({}, _enumerate()))
                while True:
                    self.follow()
                    self.watched.has_changed.wait(_LOOK_SECONDS)
            except grpc.RpcError as error:
                print(f"kubelet does not answer: {error}", flush=True)
                self.withdraw()
                time.sleep(0.5)

    def withdraw(self) -> None:
        """Offer nothing, and know nothing of the label."""
        self._stop()
        self.label = ""

    def follow(self) -> None:
        """One look at kubelet's socket and at the label."""
        if self.kubelet is not None and _inode(KUBELET / "kubelet.sock") not in (None, self.kubelet):
            self.withdraw()
        self.watched.has_changed.clear()
        label = self.watched.value
        if label is None or label == self.label or not self.configs:
            return
        config = self.config(label) if label else {}
        if config is None:
            print(f"specified config {label} does not exist", flush=True)
            time.sleep(1)
            return
        self.label = label
        print(f"config {label}", flush=True)
        self.offer(config)

    def config(self, key: str) -> Any:
        """The config of that key; None if there is none."""
        found = self.read(self.configs)
        text = found["data"].get(key) if found else None
        return None if text is None else yaml.safe_load(text)

    def offer(self, config: dict[str, Any]) -> None:
        """Stop, enumerate, and offer what the config makes of it, under MPS when the daemon answers."""
        self._stop()
        gpus = _enumerate()
        wanted = _wanted(config, gpus)
        under_mps = {name: offer for name, offer in wanted.items() if offer.mps_root is not None}
        self.daemons.follow(self.label, under_mps, gpus)
        self._serve(wanted)

    def _serve(self, wanted: dict[str, Offer]) -> None:
        for name, offer in wanted.items():
            self.resources[name] = Resource(name, offer)
            self.resources[name].start()
        self.kubelet = _inode(KUBELET / "kubelet.sock")

    def _stop(self) -> None:
        for resource in list(self.resources):
            self.resources.pop(resource).stop()

    def read(self, path: str) -> Any:
        """The object at the path; None if there is none, or no answer."""
        try:
            return json.loads(read(self.proxy, path) or "null")
        except MachineError:
            return None


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _wanted(config: dict[str, Any], gpus: tuple[Gpu, ...]) -> dict[str, Offer]:
    """Nothing, where NVIDIA's plugin would crash."""
    try:
        return offers(config, gpus)
    except ConfigError as error:
        print(f"error: {error}", flush=True)
        return {}


def _enumerate() -> tuple[Gpu, ...]:
    """The GPUs, in a process of its own: NVML's state there is new each time."""
    command = [sys.executable, "-m", "tests.e2e.cluster.plugin.enumerate"]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return tuple(Gpu(**{**gpu, "devices": tuple(map(tuple, gpu["devices"]))}) for gpu in found)


parser = argparse.ArgumentParser(prog="python -m tests.e2e.cluster.plugin")
parser.add_argument("--node", required=True)
parser.add_argument("--namespace", default="gpu-system")
parser.add_argument("--config-map", default="gpushare-profiles")
parser.add_argument("--mounted", action="store_true")
parser.add_argument("--proxy", type=Path, required=True)
chosen = parser.parse_args()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
configs = f"/api/v1/namespaces/{chosen.namespace}/configmaps/{chosen.config_map}" if chosen.config_map else ""
plugin = Plugin(chosen.node, configs, chosen.proxy)
try:
    if chosen.mounted:
        plugin.await_configs()
    plugin.run()
finally:
    plugin.withdraw()
    plugin.daemons.stop()
