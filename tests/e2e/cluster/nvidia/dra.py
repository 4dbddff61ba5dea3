"""NVIDIA's own DRA driver as a DaemonSet: its container as the chart describes it, over the fake GPUs of its node.

What a container's start needs of a driver is a root with empty libraries and stubs: pods get devices there, and no use of them.
"""

import os
import shutil
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.e2e.cluster.dra.agents import DRIVER_SPACE, Agents, daemon_set
from tests.e2e.cluster.dra.devices import Object
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.cluster.nvidia.programs import programs
from tests.support.fake_nvml import build

PROGRAM = "gpu-kubelet-plugin"
INSIDE = f"/opt/nvidia/{PROGRAM}"
LABELS = {
    "app.kubernetes.io/name": "dra-driver-nvidia-gpu",
    "dra-driver-nvidia-gpu-component": "kubelet-plugin",
    "of": "nvidia",
}

_DRIVER = "580.95.05"
_MAJOR, _CAPS_MAJOR = 195, 236
_GPUS, _GPU_INSTANCES, _COMPUTE_INSTANCES = 8, 15, 8
_SMI = """#!/usr/bin/python3 -ISB
import os, sys
with open("/gpus/nvidia-smi.log", "a") as log:
    print(*sys.argv[1:], file=log)
sys.exit(os.path.exists("/gpus/has-no-intervals"))
"""
"""What sets intervals, in the driver's container: it writes down what it is asked."""

_STUBS = {"nvidia-smi": _SMI, "nvidia-cdi-hook": "#!/bin/sh\ncat > /dev/null\n"}
_START = """
import ctypes, os, shutil, sys
libc = ctypes.CDLL(None, use_errno=True)
if libc.mount(b"tmpfs", b"/proc/driver", b"tmpfs", 0, None):
    raise OSError(ctypes.get_errno(), "mount")
shutil.copytree("/caps", "/proc/driver", dirs_exist_ok=True)
os.execv(sys.argv[1], sys.argv[1:])
"""
"""The kernel's driver has its files in /proc, over which a container runtime mounts nothing itself."""


def is_here() -> bool:
    """Whether the archive of NVIDIA's programs has the driver. FileNotFoundError without an archive."""
    return (programs() / PROGRAM).exists()


class BothDrivers(Agents):
    """The driver of NVIDIA on one node, and the tests' double on the other."""

    of_nvidia, of_double = "node-1", "node-2"

    def driver(self, values: Mapping[str, Any]) -> list[Object]:
        """Both DaemonSets, with the same values of the chart."""
        rights = super().driver(_on(values, self.of_double))
        return [*rights, self._nvidias(_on(values, self.of_nvidia))]

    def _nvidias(self, values: Mapping[str, Any]) -> Object:
        folder = self._fixture.fleet.folder / self.of_nvidia
        root = folder / "driver-root"
        _make_root(root)
        _make_caps(folder / "caps")
        mounts = {
            "plugins": ("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins"),
            "registry": ("/var/lib/kubelet/plugins_registry", "/var/lib/kubelet/plugins_registry"),
            "cdi": ("/var/run/cdi", "/var/run/cdi"),
            "program": (str(programs()), "/opt/nvidia"),
            "driver-root": (str(root), "/driver-root"),
            "caps": (str(folder / "caps"), "/caps"),
            "gpus": (str(folder), "/gpus"),
        }
        gates = ",".join(f"{name}={str(is_on).lower()}" for name, is_on in values.get("featureGates", {}).items())
        environment = {
            "NAMESPACE": DRIVER_SPACE,
            "IMAGE_NAME": RUNTIME,
            "CDI_ROOT": "/var/run/cdi",
            "NVIDIA_DRIVER_ROOT": str(root),
            "DRIVER_ROOT_CTR_PATH": "/driver-root",
            "NVIDIA_CDI_HOOK_PATH": str(root / "usr/bin/nvidia-cdi-hook"),
            "ALT_PROC_DEVICES_PATH": "/caps/devices",
            "FEATURE_GATES": gates,
            "CONSUMABLE_SHARES": values.get("consumableShares", "disabled"),
            "GPUSHARE_FAKE_NVML": "/gpus/fake-nvml",
        }
        container = {
            "name": "gpus",
            "image": RUNTIME,
            "imagePullPolicy": "Never",
            "command": ["/usr/bin/python3", "-ISBc", _START, INSIDE, "-v", "6"],
            "env": [
                {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                *({"name": name, "value": value} for name, value in environment.items()),
            ],
            "securityContext": {"privileged": True, "runAsUser": 0},
            "volumeMounts": [{"name": name, "mountPath": inside} for name, (_, inside) in mounts.items()],
        }
        return daemon_set(
            DRIVER_SPACE,
            f"{DRIVER_SPACE}-of-nvidia",
            LABELS,
            values["kubeletPlugin"],
            serviceAccountName=f"{DRIVER_SPACE}-service-account-kubeletplugin",
            containers=[container],
            volumes=[
                {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}} for name, (path, _) in mounts.items()
            ],
        )


def _on(values: Mapping[str, Any], node: str) -> Mapping[str, Any]:
    own = values["kubeletPlugin"]
    selector = {**own.get("nodeSelector", {}), "kubernetes.io/hostname": node}
    return {**values, "kubeletPlugin": {**own, "nodeSelector": selector}}


def _make_root(root: Path) -> None:
    libraries, programs_of_driver, devices = root / "usr/lib64", root / "usr/bin", root / "dev"
    for folder in (libraries, programs_of_driver, devices):
        folder.mkdir(parents=True, exist_ok=True)
    for name in ("libnvidia-ml.so.1", f"libnvidia-ml.so.{_DRIVER}", "libcuda.so.1", f"libcuda.so.{_DRIVER}"):
        shutil.copyfile(build.library(), libraries / name)
    for name, text in _STUBS.items():
        (programs_of_driver / name).write_text(text)
        (programs_of_driver / name).chmod(0o755)
    minors = {f"nvidia{gpu}": gpu for gpu in range(_GPUS)} | {"nvidia-modeset": 254, "nvidiactl": 255}
    for name, minor in minors.items():
        if not (devices / name).exists():
            os.mknod(devices / name, stat.S_IFCHR | 0o666, os.makedev(_MAJOR, minor))


def _make_caps(folder: Path) -> None:
    """What the kernel's driver tells of instances, for all that there can be."""
    minor = 0
    for gpu in range(_GPUS):
        for gi in range(_GPU_INSTANCES):
            places = [f"gi{gi}", *(f"gi{gi}/ci{ci}" for ci in range(_COMPUTE_INSTANCES))]
            for place in places:
                minor += 1
                file = folder / f"nvidia/capabilities/gpu{gpu}/mig/{place}/access"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    (folder / "devices").write_text(f"Character devices:\n{_MAJOR} nvidia\n{_CAPS_MAJOR} nvidia-caps\n\nBlock devices:\n")
