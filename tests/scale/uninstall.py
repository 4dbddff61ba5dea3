"""`python -m tests.scale.uninstall --nodes N --certificate FILE`: what the uninstall Job takes on N nodes; figures as JSON.

Real: the API server, the Job's program and its requests. Simulated: nodes, each as large as one with 50 images and NVIDIA's
labels. KUBECONFIG names the server. The nodes are made before, and taken away at the end.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from gpushare_node.clock import SystemClock
from gpushare_node.kube.address import find_address, in_cluster
from gpushare_node.kube.connection import METADATA_LIST, Connection, Request
from gpushare_node.kube.uninstall import Uninstall

_NODES = "/api/v1/nodes"
_MARK = {"example.org/simulated": "uninstall"}
_ENOUGH_SECONDS = 3600.0


def _node(number: int) -> dict[str, Any]:
    labels = {f"feature.node.kubernetes.io/cpu-cpuid.FEATURE{one}": "true" for one in range(80)}
    labels |= {f"nvidia.com/gpu.label-{one}": f"value-{one}" for one in range(30)}
    digest = "sha256:" + "0123456789abcdef" * 4
    name = "registry.example.org/some/repository"
    images = [{"names": [f"{name}-{one}@{digest}", f"{name}-{one}:v1"], "sizeBytes": 10**9} for one in range(50)]
    ready = [{"type": kind, "status": "False", "reason": "Simulated", "message": "a simulated node"} for kind in
             ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")]  # fmt: skip
    metadata = {"name": f"leaving-{number:05}", "labels": {"gpushare.dev/pool": "training", **_MARK, **labels}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"images": images, "conditions": ready}}


def _make(connection: Connection, count: int) -> None:
    def create(number: int) -> None:
        connection.ask(Request(method="POST", path=_NODES, body=_node(number)))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(create, range(count)))


def _clear(connection: Connection) -> None:
    selector = {"labelSelector": ",".join(f"{key}={value}" for key, value in _MARK.items())}
    deadline = time.monotonic() + _ENOUGH_SECONDS
    while names := [one["metadata"]["name"] for one in connection.pages(_NODES, selector, METADATA_LIST)]:
        assert time.monotonic() < deadline
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda name: connection.ask(Request(method="DELETE", path=f"{_NODES}/{name}")), names))


def _measure(url: str, folder: Path) -> dict[str, Any]:
    """The Job, as a pod runs it: without the official client."""
    begun = time.monotonic()
    clock = SystemClock()
    uninstall = Uninstall(Connection(in_cluster(url, folder), clock), "gpu-system", "nobody/nobody", clock, lambda _: None)
    farewell = uninstall.run(timeout_seconds=0.0, goes_on=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"asked": len(farewell.silent), "peak_mib": round(peak, 1), "seconds": round(time.monotonic() - begun, 1)}


def main() -> None:
    """Make the nodes, measure in a process of its own, clear up."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--certificate", type=Path, required=True)
    parser.add_argument("--measure", type=Path, help="the folder of a service account")
    chosen = parser.parse_args()
    if chosen.measure:
        json.dump(_measure(os.environ["SERVER"], chosen.measure), sys.stdout)
        return
    address = find_address(os.environ)
    connection = Connection(address, SystemClock())
    with tempfile.TemporaryDirectory() as scratch:
        account = Path(scratch)
        (account / "ca.crt").write_bytes(chosen.certificate.read_bytes())
        (account / "token").write_text(address.headers()["authorization"].removeprefix("Bearer "))
        try:
            _make(connection, chosen.nodes)
            size = len(json.dumps(connection.get(f"{_NODES}/leaving-00000")))
            command = [sys.executable, "-m", "tests.scale.uninstall", *sys.argv[1:], "--measure", str(account)]
            environment = {**os.environ, "SERVER": address.url}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        finally:
            _clear(connection)
    json.dump({"bytes": size, **json.loads(done.stdout)}, sys.stdout)


if __name__ == "__main__":
    main()
