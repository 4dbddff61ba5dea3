"""How NVIDIA's programs are started on a node: in its mounts and its network, with what their containers see beside."""

import sys
from pathlib import Path

from tests.cluster import mps_control
from tests.cluster.cluster import Cluster
from tests.cluster.node import Node
from tests.cluster.nvidia.programs import programs
from tests.node.silicon import Silicon, build

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

_SMI = f"""#!{sys.executable} -I
import sys, pynvml
_, _, uuid, _, mode = sys.argv
pynvml.nvmlInit()
pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), {{"DEFAULT": 0, "EXCLUSIVE_PROCESS": 3}}[mode])
"""


def command(cluster: Cluster, node: Node, silicon: Silicon) -> tuple[str | Path, ...]:
    """The command for the node's NVIDIA programs, that runs until it is ended."""
    folder = node.folder / "nvidia"
    folder.mkdir(exist_ok=True)
    _write_driver_programs(folder / "bin", silicon)
    return node.command(
        "unshare", "--mount", "--propagation", "private", "sh", "-euc", _ENTER, folder / "root",
        sys.executable, "-m", "tests.cluster.nvidia", "--cluster", cluster.name, "--node", node.name, "--folder", folder,
        "--programs", programs(), "--proxy", cluster.control_plane.proxy,
        "--kubeconfig", cluster.control_plane.folder / "admin.kubeconfig",
    )  # fmt: skip


def _write_driver_programs(folder: Path, silicon: Silicon) -> None:
    """Stand-ins of the driver's programs that the MPS control daemon runs."""
    state = silicon.environment["GPUSHARE_SILICON"]
    server = (str(build.tenant()), "--state", state, "--gpu", "0", "--mib", "30", "--comm", "nvidia-cuda-mps-server")
    mps_control.write_program(folder, server)
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)
