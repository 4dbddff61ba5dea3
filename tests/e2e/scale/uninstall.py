"""`python -m tests.e2e.scale.uninstall --nodes N --certificate FILE`: what the uninstall Job takes on N nodes; figures as JSON.

Real: the API server, the Job's program and its requests. Simulated: nodes, each as large as one with 50 images and NVIDIA's
labels. KUBECONFIG names the server. The nodes are made before, and taken away at the end.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from gpushare_node.adapters.kube.cluster import ClusterError
from gpushare_node.adapters.kube.connection import Connection, find_endpoint, in_cluster
from gpushare_node.adapters.kube.uninstall import Uninstall, UninstallReport
from gpushare_node.core.clock import SystemClock
from tests.e2e.scale.nodes import NODES, laden, standing

_PURPOSE = "uninstall"


def _measure(url: str, folder: Path) -> dict[str, Any]:
    """The Job, as a pod runs it: without the official client."""
    begun = time.monotonic()
    clock = SystemClock()
    uninstall = Uninstall(Connection(in_cluster(url, folder), clock), "gpu-system", "nobody/nobody", clock, lambda _: None)
    farewell = _patiently(uninstall)
    # Not getrusage: its maximum is that of whoever started this program, too.
    [peak] = [int(line.split()[1]) / 1024 for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    return {"asked": len(farewell.silent), "peak_mib": round(peak, 1), "seconds": round(time.monotonic() - begun, 1)}


def _patiently(uninstall: Uninstall) -> UninstallReport:
    """What it reports; again where a busy machine's API server answered too late. Asking a node twice changes nothing."""
    while True:
        try:
            return uninstall.run(timeout_seconds=0.0, goes_on=True)
        except ClusterError as error:
            if error.status is not None:
                raise


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
    address = find_endpoint(os.environ)
    connection = Connection(address, SystemClock())
    with tempfile.TemporaryDirectory() as scratch:
        account = Path(scratch)
        (account / "ca.crt").write_bytes(chosen.certificate.read_bytes())
        (account / "token").write_text(address.headers()["authorization"].removeprefix("Bearer "))
        nodes = (laden(number, _PURPOSE, {"gpushare.dev/pool": "training"}) for number in range(chosen.nodes))
        with standing(connection, _PURPOSE, nodes):
            size = len(json.dumps(connection.get(f"{NODES}/laden-00000")))
            command = [sys.executable, "-m", "tests.e2e.scale.uninstall", *sys.argv[1:], "--measure", str(account)]
            environment = {**os.environ, "SERVER": address.url}
            done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    json.dump({"bytes": size, **json.loads(done.stdout)}, sys.stdout)


if __name__ == "__main__":
    main()
