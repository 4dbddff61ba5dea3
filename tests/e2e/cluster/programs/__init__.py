"""The programs of a Kubernetes cluster, built from the Go module proxy once into the tests' cache.

`python -m tests.e2e.cluster.programs` builds them and prints where they are. Needs Go 1.26: with 1.27 this
Kubernetes has no OpenAPI.
"""

import functools
import hashlib
import os
import re
import subprocess
from pathlib import Path

from tests.support import cache

_HERE = Path(__file__).parent
_PACKAGES = {
    "kubernetes": tuple(
        f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    ),
    "containerd": tuple(
        f"github.com/containerd/containerd/v2/cmd/{name}" for name in ("containerd", "containerd-shim-runc-v2", "ctr")
    ),
    "etcd": ("go.etcd.io/etcd/server/v3",),
}
_RENAMED = {"server": "etcd"}
"""Go names a program by its package's folder."""


@functools.cache
def programs() -> tuple[Path, ...]:
    """The folders that hold them. Builds what is missing: five minutes on two cores. CalledProcessError if that fails."""
    go = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    return tuple(cache.folder(f"{module}-{_digest(module, go)}", functools.partial(_build, module)) for module in _PACKAGES)


@functools.cache
def program(name: str) -> Path:
    """One of them by name."""
    [found] = [folder / name for folder in programs() if (folder / name).is_file()]
    return found


def _digest(module: str, go: str) -> str:
    """Of everything that decides what is built."""
    files = [(_HERE / module / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go")]
    return hashlib.sha256(b"\0".join([*files, go.encode(), Path(__file__).read_bytes()])).hexdigest()[:12]


def _build(module: str, folder: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
    tags = "no_btrfs,no_devmapper,no_zfs"
    command = ["go", "build", "-trimpath", "-tags", tags, "-ldflags", f"-s -w {_version()}", "-o", f"{folder}/"]
    subprocess.run([*command, *_PACKAGES[module]], cwd=_HERE / module, env=environment, check=True)
    for built, name in _RENAMED.items():
        if (folder / built).is_file():
            (folder / built).rename(folder / name)


def _version() -> str:
    """Kubernetes takes its version from the linker; without it clients meet a server of version 0.0."""
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)", (_HERE / "kubernetes" / "go.mod").read_text())
    assert found is not None
    major, minor, patch = found.groups()
    values = {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())
