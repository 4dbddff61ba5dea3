"""The programs of a Kubernetes cluster, built from the Go module proxy once into the tests' cache.

`python -m tests.e2e.cluster.programs` builds them and prints where they are. Needs Go 1.26: with 1.27 this
Kubernetes has no OpenAPI.
"""

import functools
import re
from pathlib import Path

from tests.support.go_module import GoModule

_HERE = Path(__file__).parent


@functools.cache
def programs() -> tuple[Path, ...]:
    """The folders that hold them. Builds what is missing: five minutes on two cores. CalledProcessError if that fails."""
    return tuple(module.folder for module in _MODULES)


@functools.cache
def program(name: str) -> Path:
    """One of them by name."""
    [found] = [folder / name for folder in programs() if (folder / name).is_file()]
    return found


def _version() -> str:
    """Kubernetes takes its version from the linker; without it clients meet a server of version 0.0."""
    found = re.search(r"k8s\.io/kubernetes v(\d+)\.(\d+)\.(\d+)", (_HERE / "kubernetes" / "go.mod").read_text())
    assert found is not None
    major, minor, patch = found.groups()
    values = {"gitVersion": f"v{major}.{minor}.{patch}", "gitMajor": major, "gitMinor": minor}
    packages = ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version")
    return " ".join(f"-X {package}.{name}={value}" for package in packages for name, value in values.items())


def _fill_kubernetes(module: GoModule, folder: Path) -> None:
    names = ("kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubelet")
    module.build(folder, *(f"k8s.io/kubernetes/cmd/{name}" for name in names))


def _fill_containerd(module: GoModule, folder: Path) -> None:
    names = ("containerd", "containerd-shim-runc-v2", "ctr")
    module.build(folder, *(f"github.com/containerd/containerd/v2/cmd/{name}" for name in names))


_MODULES = (
    GoModule(name="kubernetes", here=_HERE / "kubernetes", fill=_fill_kubernetes, linker=_version()),
    GoModule(name="containerd", here=_HERE / "containerd", fill=_fill_containerd, tags="no_btrfs,no_devmapper,no_zfs"),
    GoModule(
        name="etcd",
        here=_HERE / "etcd",
        fill=lambda module, folder: module.build(folder / "etcd", "go.etcd.io/etcd/server/v3"),
    ),
)
