"""The suites: a folder of tests each, and what it needs besides Python. `make test` is every other folder of `tests`."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

UNIT = ("tests", "--ignore=tests/e2e", "--ignore=tests/long")
"""What `make test` collects: tests that need Python, a C compiler and Helm from its wheel."""

NVIDIA_DEVICE = "/dev/nvidiactl"
"""There wherever NVIDIA's driver is loaded and may be used. No package of Debian's brings it."""
_SCALES = re.compile(r"^from tests\.support import (.*, )?scale\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests that need more than `make test`. `tools` are programs or files, each with the Debian package that has it."""

    name: str
    title: str
    folders: tuple[str, ...]
    """What pytest collects, with its options for that."""
    tools: dict[str, str]
    distribution: tuple[str, ...] = ()
    niceness: int = 0
    """Of a suite that only computes: beside others it takes what they leave."""
    needs_root: bool = False
    needs_compiler: bool = False
    needs_folder: str = ""
    """An environment variable that names a folder which only the user can have. Without it the suite is left out."""
    builds: tuple[str, ...] = ()
    """Modules that build or fetch into the tests' cache what it runs."""


def _scaled() -> tuple[str, ...]:
    """The files of `make test` that try only a part of a property there (tests/support/scale.py)."""
    house = Path(__file__).parents[1]
    ours = (path.relative_to(house.parent) for path in sorted(house.rglob("test_*.py")))
    files = (path for path in ours if path.parts[1] not in ("e2e", "long"))
    return tuple(str(path) for path in files if _SCALES.search((house.parent / path).read_text(encoding="utf-8")))


_CONTAINERS = {"buildah": "buildah", "mmdebstrap": "mmdebstrap", "openssl": "openssl", "runc": "runc", "skopeo": "skopeo"}
_CLUSTER = Suite(
    # Most of its time is waiting: three clusters side by side, and a file of tests on one of them.
    name="cluster",
    title="a real cluster",
    folders=("tests/e2e/cluster", "--ignore=tests/e2e/cluster/nvidia"),
    distribution=("-n", "3", "--dist", "loadfile"),
    needs_root=True,
    needs_compiler=True,
    tools=_CONTAINERS
    | {
        "ip": "iproute2",
        "nsenter": "util-linux",
        "sysctl": "procps",
        "/usr/lib/cni/ptp": "containernetworking-plugins",
        "prometheus": "prometheus",
        "go": "",
    },
    builds=(
        "tests.e2e.cluster.programs",
        "tests.e2e.image.building",
        "tests.e2e.cluster.kube_state_metrics",
        "tests.e2e.cluster.dra.driver",
    ),
)
SUITES = (
    # Three run side by side: the longest first, two that mostly wait, and one that computes on what these leave.
    _CLUSTER,
    replace(
        _CLUSTER,
        name="gitops",
        title="GitOps tools on a real cluster",
        folders=("tests/e2e/gitops",),
        distribution=("-n", "2", "--dist", "loadfile"),
        tools=_CLUSTER.tools | {"git": "git", "redis-server": "redis-server"},
        builds=(*_CLUSTER.builds, "tests.e2e.gitops.argocd.program", "tests.e2e.gitops.flux.program"),
    ),
    Suite(
        name="long",
        title="long simulations and fresh installs",
        folders=("tests/long", *_scaled(), "--long"),
        distribution=("-n", "2", "--dist", "worksteal"),
        niceness=10,
        needs_compiler=True,
        tools={},
    ),
    Suite(
        name="registry",
        title="a real registry",
        folders=("tests/e2e/registry",),
        builds=("tests.e2e.registry.crane",),
        tools={"docker-registry": "docker-registry", "skopeo": "skopeo", "openssl": "openssl", "go": ""},
    ),
    Suite(
        name="pipelines",
        title="git, pre-commit and kustomize",
        folders=("tests/e2e/pipelines",),
        tools={"git": "git", "curl": "curl", "go": ""},
        builds=("tests.e2e.pipelines.kustomize",),
    ),
    Suite(
        name="judges",
        title="chart and dashboard before judges",
        folders=("tests/e2e/judges",),
        tools={"go": ""},
        builds=("tests.e2e.judges.checkov", "tests.e2e.judges.grafana"),
    ),
    Suite(
        name="image",
        title="the image, in containers",
        folders=("tests/e2e/image",),
        needs_root=True,
        needs_compiler=True,
        tools=_CONTAINERS | {"docker-registry": "docker-registry", "podman": "podman"},
        builds=("tests.e2e.image.building",),
    ),
    Suite(
        name="publishing",
        title="publishing a release",
        folders=("tests/e2e/publishing",),
        needs_root=True,
        tools=_CONTAINERS | {"docker-registry": "docker-registry", "git": "git", "make": "make", "go": ""},
        builds=("tests.e2e.publishing.cosign", "tests.e2e.publishing.helm_3_18"),
    ),
    Suite(
        name="pages",
        title="alert rules, dashboards, pages and the site",
        folders=("tests/e2e/pages",),
        tools={"chromium": "chromium", "prometheus": "prometheus", "promtool": "prometheus"},
    ),
    replace(
        _CLUSTER,
        name="nvidia",
        title="NVIDIA's own plugin and charts",
        folders=("tests/e2e/cluster/nvidia", "tests/e2e/nvidia"),
        needs_folder="NVIDIA",
        distribution=("-n", "2", "--dist", "loadscope"),
    ),
    Suite(
        name="amd",
        title="AMD's own device plugin",
        folders=("tests/e2e/amd",),
        tools={"unshare": "util-linux"},
        needs_root=True,
        needs_folder="AMD",
    ),
    Suite(name="gpu", title="a real GPU", folders=("tests/e2e/gpu",), tools={NVIDIA_DEVICE: ""}),
)
NAMES = tuple(suite.name for suite in SUITES)
CLUSTER = _CLUSTER
OPTIONAL = ("nvidia", "amd", "gpu")
"""Left out where a GPU, or the folder with a vendor's programs, is missing: nobody can install these."""
