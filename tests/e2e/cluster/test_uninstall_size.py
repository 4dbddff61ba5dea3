"""The uninstall Job on 750 nodes of a real API server: its memory does not grow with the cluster.

For more nodes: `python -m tests.e2e.scale.uninstall --nodes 5000` against a cluster.
"""

import json
import os
import subprocess
import sys
from typing import Any

from tests.e2e.cluster.cluster import Cluster
from tests.support.paths import ROOT

MAX_MIB = 128
"""Half of the Job's limit."""


def measured(cluster: Cluster, nodes: int) -> dict[str, Any]:
    """What the Job takes on so many nodes, in a process in the cluster's network."""
    plane = cluster.control_plane
    certificate = plane.folder / "certificates" / "apiserver.crt"
    program = (sys.executable, "-W", "ignore", "-m", "tests.e2e.scale.uninstall", "--nodes", str(nodes))
    command = [str(part) for part in cluster.network.command(*program, "--certificate", certificate)]
    environment = {**os.environ, "KUBECONFIG": str(plane.folder / "admin.kubeconfig")}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout)
    print(nodes, found)
    return found


def test_the_jobs_memory_does_not_grow_with_the_cluster(cluster: Cluster) -> None:
    few, many = measured(cluster, 150), measured(cluster, 750)
    assert (few["asked"], many["asked"]) == (150, 750)
    assert many["bytes"] > 15_000, "as large as real ones"
    assert many["peak_mib"] < MAX_MIB
    assert many["peak_mib"] < few["peak_mib"] + 24
