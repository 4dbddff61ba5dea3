"""How long `gpushare status` takes on a large cluster, and how much memory: simulated objects over local HTTP; figures as JSON.

`python -m tests.bench.live_reader [--nodes N] [--pods-per-node N]`. Nodes are of 20 kB each, pods of 6 kB, as on a cloud: most
of that are images, conditions and managed fields. The server runs in a process of its own, with its answers made before.
"""

import argparse
import json
import multiprocessing
import resource
import subprocess
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

_LIMIT = 500
_NODE_BYTES, _POD_BYTES = 20_000, 6_000


def _node(number: int) -> dict[str, Any]:
    condition = {
        "type": "GPUShareReady",
        "status": "True",
        "reason": "Ready",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    labels = {f"feature.node.kubernetes.io/cpu-feature.{one}": "true" for one in range(60)}
    labels |= {"gpushare.dev/pool": f"pool-{number % 20}"}
    thing: dict[str, Any] = {
        "metadata": {"name": f"node-{number}", "labels": labels},
        "spec": {},
        "status": {
            "allocatable": {"cpu": "64", "nvidia.com/gpu.shared": "32"},
            "capacity": {"nvidia.com/gpu.shared": "32"},
            "conditions": [{"type": "Ready", "status": "True"}, condition],
            "images": [],
        },
    }
    names = ["registry.example.org/team/image@sha256:" + "0" * 64, "registry.example.org/team/image:1.0"]
    image = {"names": names, "sizeBytes": 1}
    missing = _NODE_BYTES - len(json.dumps(thing))
    thing["status"]["images"] = [image] * (missing // len(json.dumps(image)))
    return thing


def _pod(number: int, nodes: int) -> dict[str, Any]:
    limits = {"nvidia.com/gpu.shared": "1"} if number % 4 == 0 else {"cpu": "1"}
    thing: dict[str, Any] = {
        "metadata": {"name": f"pod-{number}", "namespace": f"team-{number % 50}", "managedFields": []},
        "spec": {"nodeName": f"node-{number % nodes}", "containers": [{"name": "main", "resources": {"limits": limits}}]},
        "status": {"phase": "Running"},
    }
    filler = {"manager": "kubelet", "fieldsV1": {f"f:field-{one}": {} for one in range(20)}}
    thing["metadata"]["managedFields"] = [filler] * ((_POD_BYTES - len(json.dumps(thing))) // len(json.dumps(filler)))
    return thing


def _pages(items: list[dict[str, Any]]) -> list[bytes]:
    starts = range(0, len(items), _LIMIT)
    return [
        json.dumps(
            {
                "metadata": {"continue": str(at // _LIMIT + 1)} if at + _LIMIT < len(items) else {},
                "items": items[at : at + _LIMIT],
            }
        ).encode()
        for at in starts
    ] or [b'{"items": []}']


def serve(nodes: int, pods_per_node: int, ready: Connection) -> None:
    """Serve lists of that many objects, until the process is ended; sends the port and the number of bytes."""
    answers = {
        "nodes": _pages([_node(number) for number in range(nodes)]),
        "pods": _pages([_pod(number, nodes) for number in range(nodes * pods_per_node)]),
    }

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            url = urlsplit(self.path)
            pages = answers.get(url.path.rpartition("/")[2], [b'{"items": []}'])
            data = pages[int(parse_qs(url.query).get("continue", ["0"])[0])]
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    ready.send((server.server_address[1], sum(len(page) for pages in answers.values() for page in pages)))
    server.serve_forever()


def measure(port: int, folder: Path) -> tuple[float, float]:
    """Return the seconds and the MiB that one `gpushare status` takes, all of it."""
    path = folder / "kubeconfig"
    path.write_text(
        json.dumps(
            {
                "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
                "users": [{"name": "u", "user": {}}],
            }
        )
    )
    begin = time.monotonic()
    command = [sys.executable, "-m", "gpushare", "status", "--kubeconfig", str(path), "--format", "json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods-per-node", type=int, default=4)
    arguments = parser.parse_args()
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.Process(target=serve, args=(arguments.nodes, arguments.pods_per_node, theirs), daemon=True)
    process.start()
    try:
        port, size = ours.recv()
        with tempfile.TemporaryDirectory() as folder:
            seconds, mib = measure(port, Path(folder))
    finally:
        process.terminate()
        process.join()
    print(
        json.dumps(
            {
                "nodes": arguments.nodes,
                "pods": arguments.nodes * arguments.pods_per_node,
                "received_mib": round(size / 2**20),
                "seconds": round(seconds, 2),
                "peak_mib": round(mib),
            }
        )
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
