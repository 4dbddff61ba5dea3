"""How NVIDIA's programs are started on a node: in its mounts and its network, with what their containers see beside."""

import sys
from pathlib import Path

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.node import Node
from tests.e2e.cluster.nvidia.programs import programs

# /mps and the driver's /proc are there in containers alone: so the programs get a root of their own, with the node in it.
_ENTER = """
mkdir -p "$0" /run/nvidia/mps/shm
mount -t tmpfs tmpfs "$0"
mount --make-unbindable "$0"
for path in /*; do
  if [ -L "$path" ]; then cp -a "$path" "$0$path"
  elif [ -d "$path" ]; then mkdir "$0$path"; mount --rbind "$path" "$0$path"
  fi
done
mkdir "$0/mps"
mount --bind /run/nvidia/mps "$0/mps"
mount -t tmpfs tmpfs "$0/proc/driver"
exec chroot "$0" "$@"
"""


def command(cluster: Cluster, node: Node) -> tuple[str | Path, ...]:
    """The command for the node's NVIDIA programs, that runs until it is ended."""
    folder = node.folder / "nvidia"
    folder.mkdir(exist_ok=True)
    return node.command(
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-euc",
        _ENTER,
        folder / "root",
        sys.executable,
        "-m",
        "tests.e2e.cluster.nvidia",
        "--cluster",
        cluster.name,
        "--node",
        node.name,
        "--folder",
        folder,
        "--programs",
        programs(),
        "--proxy",
        cluster.control_plane.proxy,
        "--kubeconfig",
        cluster.control_plane.folder / "admin.kubeconfig",
    )
