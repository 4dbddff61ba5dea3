"""One real node: containerd and kubelet in a mount namespace of their own, so that each has its /var/lib/kubelet and /run."""

import json
import os
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.cluster import machine
from tests.e2e.cluster.control_plane import node_token, write_kubeconfig
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.machine import API_SERVICE, NODE_ADDRESSES, POD_NETWORKS, Cgroup, MachineError, Network
from tests.e2e.cluster.programs import program, programs

# Overlays, so that what kubelet, containerd and CNI make there is seen by nobody else and gone with the namespace.
_ENTER = """
mount --make-rshared /
for root in /var/lib /run; do
  work="$NODE/overlay$root"
  mkdir -p "$work/upper" "$work/work"
  mount -t overlay overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" "$root"
done
mkdir -p /var/lib/kubelet /var/lib/gpushare /run/nvidia /run/netns
mount --bind /var/lib/kubelet /var/lib/kubelet
mount --make-rshared /var/lib/kubelet
exec "$@"
"""

_RUNC = "io.containerd.runc.v2"
GPU_CLIENTS = "nvidia.com/gpu.deploy.client"
"""The label that gpu-operator gives every node with GPUs, with the value `true`."""


@dataclass(frozen=True, kw_only=True)
class Driver:
    """What NVIDIA's runtime lays into containers of the runtime class `nvidia`. `files`: path in the container → path here."""

    files: Mapping[str, Path] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)


class Node:
    """A node of a cluster."""

    def __init__(self, cluster: str, number: int, folder: Path, network: Network) -> None:
        self.name = f"node-{number + 1}"
        self.number = number
        self.folder = folder
        self.network = network
        self.cgroup = Cgroup(f"{cluster}-{self.name}")
        self.pids: dict[str, int] = {}

    @property
    def socket(self) -> Path:
        """Of containerd."""
        return self.folder / "containerd.sock"

    def start(self, driver: Driver) -> None:
        """containerd, then kubelet."""
        for part in ("containerd", "cni", "pod-logs", "kubelet-certificates"):
            (self.folder / part).mkdir(parents=True)
        self.cgroup.make()
        self._configure_containerd(driver)
        self._start_containerd()
        self._configure_kubelet()
        self.start_kubelet()

    def _configure_containerd(self, driver: Driver) -> None:
        network = {
            "cniVersion": "1.0.0",
            "name": "pods",
            "plugins": [
                {
                    "type": "ptp",
                    "ipMasq": False,
                    "ipam": {
                        "type": "host-local",
                        "subnet": POD_NETWORKS[self.number],
                        "dataDir": str(self.folder / "addresses"),
                        "routes": [{"dst": "0.0.0.0/0"}],
                    },
                }
            ],
        }
        (self.folder / "cni" / "pods.conflist").write_text(json.dumps(network))
        (self.folder / "nvidia.json").write_text(json.dumps(self._with_driver(driver)))
        (self.folder / "containerd.toml").write_text(f"""
version = 3
root = "{self.folder}/containerd/root"
state = "{self.folder}/containerd/state"
[grpc]
address = "{self.socket}"
[plugins.'io.containerd.nri.v1.nri']
disable = true
[plugins.'io.containerd.cri.v1.images']
snapshotter = "overlayfs"
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = "{PAUSE}"
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ["/usr/lib/cni"]
conf_dir = "{self.folder}/cni"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = "{_RUNC}"
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.nvidia]
runtime_type = "{_RUNC}"
base_runtime_spec = "{self.folder}/nvidia.json"
""")

    def _with_driver(self, driver: Driver) -> dict[str, object]:
        """containerd's own spec, with the driver's files in it: what NVIDIA's container runtime does."""
        spec = json.loads(machine.run(program("ctr"), "oci", "spec"))
        for inside, here in driver.files.items():
            options = ["bind", "rw", "nosuid"]
            spec["mounts"].append({"type": "bind", "source": str(here), "destination": inside, "options": options})
        spec["process"]["env"] = [f"{name}={value}" for name, value in driver.environment.items()]
        return dict(spec)

    def _start_containerd(self) -> None:
        path = f"{os.environ['PATH']}:{':'.join(map(str, programs()))}"
        command = self.network.command(
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-euc",
            _ENTER,
            "sh",
            program("containerd"),
            "--config",
            self.folder / "containerd.toml",
        )
        environment = {"NODE": str(self.folder), "PATH": path}
        self.pids["containerd"] = machine.start(command, self.folder / "containerd.log", environment)
        self._remember()
        deadline = time.monotonic() + machine.PATIENCE
        while self.ctr("version", check=False).returncode:
            if time.monotonic() > deadline or not machine.is_running(self.pids["containerd"]):
                raise MachineError(f"containerd does not start:\n{(self.folder / 'containerd.log').read_text()[-2000:]}")
            time.sleep(0.05)

    def _configure_kubelet(self) -> None:
        write_kubeconfig(self.folder / "kubelet.kubeconfig", f"https://{API_SERVICE}", node_token(self.name))
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            # For `kubectl logs` and `exec`; the network namespace is the fence.
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "containerRuntimeEndpoint": f"unix://{self.socket}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.cgroup.name}",
            "failCgroupV1": False,
            "enforceNodeAllocatable": [],
            "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "100Mi"},
            "address": NODE_ADDRESSES[self.number],
            "port": 10250,
            "healthzPort": 0,
            "readOnlyPort": 0,
            "podLogsDir": str(self.folder / "pod-logs"),
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            # Tests wait for what kubelet does: seconds instead of ten and of a minute. A write of the status has as long as
            # the first of them; not less, for that the resources of a plugin are gone it writes once.
            "nodeStatusUpdateFrequency": "2s",
            "nodeStatusReportFrequency": "5m",
            "syncFrequency": "5s",
            "configMapAndSecretChangeDetectionStrategy": "Watch",
            "registerWithTaints": [],
            "serverTLSBootstrap": False,
            "shutdownGracePeriod": "0s",
        }
        (self.folder / "kubelet.json").write_text(json.dumps(config))

    def start_kubelet(self) -> None:
        """Start it, also again."""
        self.pids["kubelet"] = machine.start(
            self.command(
                program("kubelet"),
                "--config",
                self.folder / "kubelet.json",
                "--kubeconfig",
                self.folder / "kubelet.kubeconfig",
                "--root-dir",
                "/var/lib/kubelet",
                "--cert-dir",
                self.folder / "kubelet-certificates",
                "--hostname-override",
                self.name,
                "--node-ip",
                NODE_ADDRESSES[self.number],
                "--node-labels",
                f"{GPU_CLIENTS}=true",
            ),
            self.folder / "kubelet.log",
        )
        self._remember()

    def stop_kubelet(self) -> None:
        """Pods go on without it."""
        machine.stop([self.pids.pop("kubelet")], seconds=5)
        self._remember()

    def stop_pods(self) -> None:
        """End every process of every pod, at once, as a power cut does."""
        machine.stop(sorted(self.cgroup.processes()), seconds=0)

    def processes(self, *words: str) -> list[int]:
        """Those of its pods with all these words on their command line."""
        found = []
        for pid in sorted(self.cgroup.processes()):
            with suppress(OSError):
                if set(words) <= set(Path(f"/proc/{pid}/cmdline").read_text(errors="replace").split("\0")):
                    found.append(pid)
        return found

    def command(self, *command: str | Path) -> tuple[str | Path, ...]:
        """The command on this node: in its network and with its folders."""
        inside = f"/proc/{self.pids['containerd']}/ns/mnt"
        return self.network.command("nsenter", f"--mount={inside}", *command)

    def ctr(self, *arguments: str | Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """containerd's own client, in the namespace of Kubernetes."""
        command = [str(program("ctr")), "--address", str(self.socket), "--namespace", "k8s.io", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=check)

    def load(self, archive: Path) -> None:
        """Bring an image to the node."""
        self.ctr("images", "import", archive)

    def path(self, inside: str) -> Path:
        """Where a path of the node, such as /var/lib/gpushare, is to be found from outside."""
        return Path(f"/proc/{self.pids['containerd']}/root{inside}")

    def _remember(self) -> None:
        (self.folder / "pids.json").write_text(json.dumps(self.pids))
