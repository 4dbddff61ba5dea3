"""MPS on a node of the tests' own plugin: what NVIDIA's MPS control daemon does, and what its device plugin says of it.

Facts: k8s-device-plugin v0.20.0, cmd/mps-control-daemon/mps and internal/plugin/mps.go. A daemon for each resource, that ends
its server when the config no longer wants it; its pipe directory stays. The programs that it runs are found in PATH.
"""

import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.e2e.cluster.plugin.offer import Gpu, Offer, device_of
from tests.e2e.cluster.plugin.wire import Answer


def with_pipe(environment: Mapping[str, str], root: str, resource: str) -> Answer:
    """What a client gets besides: the daemon's pipe, and the memory that all clients of the node share with the servers."""
    inside = f"/mps/{resource}/pipe"
    mounts = {inside: f"{root}/{resource}/pipe", "/dev/shm": f"{root}/shm"}
    return Answer(environment={**environment, "CUDA_MPS_PIPE_DIRECTORY": inside}, mounts=mounts)


class Daemons:
    """The MPS control daemons of a node."""

    def __init__(self) -> None:
        self._label = ""
        self._running: dict[str, Offer] = {}

    def follow(self, label: str, wanted: Mapping[str, Offer], gpus: tuple[Gpu, ...]) -> None:
        """Another label starts them all anew, as its signal does; a kubelet that starts anew does not. They answer then."""
        if label == self._label:
            return
        self._label = label
        self.stop()
        for name, offer in wanted.items():
            self._running[name] = offer
            self._start(name, offer, gpus)

    def stop(self) -> None:
        """With their servers."""
        for name in list(self._running):
            offer = self._running.pop(name)
            _control(Path(offer.mps_root or "") / name, said="quit")
            _set_compute_modes(map(device_of, offer.ids), "DEFAULT")

    def _start(self, name: str, offer: Offer, gpus: tuple[Gpu, ...]) -> None:
        root, shares = Path(offer.mps_root or ""), Counter(map(device_of, offer.ids))
        for folder in ("shm", f"{name}/pipe", f"{name}/log"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        _set_compute_modes(shares, "EXCLUSIVE_PROCESS")
        _control(root / name, "-d")
        for index, gpu in enumerate(gpus):
            _control(root / name, said=f"set_default_device_pinned_mem_limit {index} {gpu.memory_mib // shares[gpu.uuid]}M")
        _control(root / name, said=f"set_default_active_thread_percentage {100 // max(shares.values())}")


def _set_compute_modes(uuids: Iterable[str], mode: str) -> None:
    for uuid in sorted(set(uuids)):
        subprocess.run(["nvidia-smi", "-i", uuid, "-c", mode], check=True)


def _control(folder: Path, *arguments: str, said: str = "") -> None:
    environment = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": f"{folder}/pipe", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/log"}
    subprocess.run(["nvidia-cuda-mps-control", *arguments], input=said, text=True, check=True, env=environment)
