"""A stand-in for an MPS daemon on a node: its pipe directory with what `mps_control` reads, and a server that is a pod."""

from pathlib import Path

from tests.cluster.images import TENANT
from tests.cluster.lab import Lab


class Daemon:
    """The daemon of one node's shared GPUs. `serve` first, then the clients come."""

    def __init__(self, lab: Lab, node: str) -> None:
        self._lab = lab
        self._node = node
        self._pipe = lab.node(node).path("/run/nvidia/mps/nvidia.com/gpu.shared/pipe")

    def serve(self) -> None:
        """Start the server: as NVIDIA's, root's, in a system pod that shares the host's process ids."""
        self._pipe.mkdir(parents=True, exist_ok=True)
        arguments = ["--gpu", "0", "--mib", "30", "--kind", "compute", "--comm", "nvidia-cuda-mps-server"]
        container = {"name": "server", "image": TENANT, "imagePullPolicy": "Never", "args": arguments}
        self._lab.cluster.apply({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "mps", "namespace": "kube-system"},
            "spec": {"nodeSelector": {"kubernetes.io/hostname": self._node}, "hostPID": True, "runtimeClassName": "nvidia",
                     "containers": [container], "terminationGracePeriodSeconds": 1},
        })  # fmt: skip
        self._lab.await_tenant("mps", "ready", where="kube-system")
        (self._pipe / "clients").write_text("")
        (self._pipe / "server").write_text(f"{self.pids('mps', 'kube-system')[0]}\n")

    def connect(self, *tenants: str) -> None:
        """Make these tenants clients of it."""
        (self._pipe / "clients").write_text("\n".join(str(pid) for name in tenants for pid in self.pids(name)))

    def terminated(self) -> list[int]:
        """The clients that it was asked to end, and did."""
        file = self._pipe / "terminated"
        return [int(pid) for pid in file.read_text().split()] if file.exists() else []

    def pids(self, name: str, where: str = "course") -> list[int]:
        """The processes of a pod's container, as the machine counts them."""
        uid = self._lab.cluster.get("pod", name, "--namespace", where)["metadata"]["uid"]
        found = []
        for pid in self._lab.node(self._node).cgroup.processes():
            cgroups, program = Path(f"/proc/{pid}/cgroup"), Path(f"/proc/{pid}/cmdline")
            if uid in cgroups.read_text() and program.read_bytes().startswith(b"/tenant"):
                found.append(pid)
        return found

    def leave(self) -> None:
        """The daemon goes, and its folder."""
        self._lab.dismiss("mps", where="kube-system")
        for path in self._pipe.iterdir():
            path.unlink()
        self._pipe.rmdir()
