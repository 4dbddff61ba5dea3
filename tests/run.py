"""`make test`: every suite that this machine can run, one after the other, and what had to be left out and why.

Where it runs as root on Debian it installs what is missing; elsewhere it names it. Exit 1 if a suite fails.
"""

import contextlib
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Tests that need more than Python. `tools` are programs or files, each with the Debian package that has it."""

    name: str
    marked: str
    distribution: tuple[str, ...]
    tools: dict[str, str]
    needs_root: bool = False
    needs_folder: str = ""
    """An environment variable that names a folder which only the user can have."""
    meanwhile: tuple[str, ...] = ()
    """Modules that build what later suites need, run beside it one after the other: it waits most of its time."""
    fetched: tuple[str, ...] = ()
    """Modules that bring what it runs from a registry of packages into the tests' cache; where one fails, it is left out."""
    probe: str = ""
    """A script that must succeed: root in a sandbox may still lack what containers are made of."""


_GCC = {"gcc": "gcc", "/usr/include/stdio.h": "libc6-dev"}
_NVIDIA = "/dev/nvidiactl"
"""There wherever NVIDIA's driver is loaded and may be used. Nobody's to install."""

_PROBE = """
folder=$(mktemp -d -p /var/tmp)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/lower" "$folder/upper" "$folder/work" "$folder/whole"
export folder
unshare --mount --net --pid --fork --propagation private sh -euc '
  mount -t overlay overlay -o "lowerdir=$folder/lower,upperdir=$folder/upper,workdir=$folder/work" "$folder/whole"'
"""
_JUDGES = ("tests.chart.checkov", "tests.compiler.monitoring.grafana")
_CONTAINERS = {"runc": "runc", "openssl": "openssl"}
CLUSTER = Suite(
    # Much of it is waiting: clusters side by side, and a file of tests on one of them.
    name="a real cluster", marked="cluster and not nvidia", distribution=("-n", "3", "--dist", "loadfile"),
    needs_root=True, probe=_PROBE,
    tools=_GCC | _CONTAINERS | {
        "buildah": "buildah", "mmdebstrap": "mmdebstrap", "skopeo": "skopeo", "ip": "iproute2",
        "nsenter": "util-linux", "sysctl": "procps", "/usr/lib/cni/ptp": "containernetworking-plugins", "go": "",
    },
)
SUITES = (
    Suite(name="everything on one machine",
          marked="not image and not cluster and not gitops and not gpu and not nvidia and not registry and not pipelines"
                 " and not windows and not publishing",
          distribution=("-n", "2", "--dist", "worksteal"), tools=_GCC),
    Suite(name="pipelines", marked="pipelines", distribution=(), tools={"git": "git", "curl": "curl", "go": ""},
          meanwhile=_JUDGES),
    Suite(name="monitoring and pages", marked="windows and not judges", distribution=(),
          tools={"promtool": "prometheus", "chromium": "chromium"}),
    Suite(name="chart and dashboard before judges", marked="judges", distribution=(), tools={"go": ""}, fetched=_JUDGES),
    Suite(name="a registry", marked="registry", distribution=(),
          tools={"docker-registry": "docker-registry", "skopeo": "skopeo", "openssl": "openssl", "go": ""}),
    Suite(
        name="the image, in containers", marked="image", distribution=(), needs_root=True, probe=_PROBE,
        tools=_GCC | _CONTAINERS | {
            "buildah": "buildah", "podman": "podman", "mmdebstrap": "mmdebstrap", "skopeo": "skopeo",
        },
        meanwhile=("tests.e2e.cluster.kube_state_metrics",),
    ),
    replace(CLUSTER, tools=CLUSTER.tools | {"prometheus": "prometheus"},
            meanwhile=("tests.e2e.gitops.argocd.program", "tests.e2e.gitops.flux.program", "tests.packaging.cosign",
                       "tests.packaging.helm_3_18")),
    replace(CLUSTER, name="Argo CD and Flux on it", marked="gitops", distribution=(),
            tools=CLUSTER.tools | {"git": "git", "redis-server": "redis-server"}),
    Suite(name="publishing a release", marked="publishing", distribution=(),
          tools={"docker-registry": "docker-registry", "skopeo": "skopeo", "go": ""}),
    replace(CLUSTER, name="NVIDIA's own plugin on it", marked="cluster and nvidia", needs_folder="NVIDIA",
            distribution=("-n", "2", "--dist", "loadscope")),
    Suite(name="NVIDIA's charts", marked="nvidia and not cluster", distribution=(), tools={}, needs_folder="NVIDIA"),
    Suite(name="a real GPU", marked="gpu", distribution=(), tools={_NVIDIA: ""}),
)


def main() -> int:
    """The exit code of all suites together."""
    _install({package for suite in SUITES for _, package in _missing(suite) if package})
    told, failed, all_begun = [], False, time.monotonic()
    with contextlib.ExitStack() as builds:
        for suite in SUITES:
            reasons = list(why_not(suite))
            if reasons:
                told.append(f"LEFT OUT  {suite.name}: {', '.join(reasons)}")
                continue
            begun = time.monotonic()
            builds.enter_context(_building(suite.meanwhile))
            outcome = run(suite)
            failed |= outcome.word == "FAILED"
            told.append(f"{outcome.word:8}  {suite.name}: {time.monotonic() - begun:.0f} s")
            again = f"  only at the second try (--hypothesis-seed={outcome.seed}), a defect:"
            told += [f"{again} {test}" for test in outcome.unsteady]
    told.append(f"altogether {(time.monotonic() - all_begun) / 60:.0f} min")
    print("\n".join(["", *told]))
    return int(failed)


@contextlib.contextmanager
def _building(modules: tuple[str, ...]) -> Iterator[None]:
    """Run the modules in the background, behind everything else. What fails is run again where it is needed, and says why."""
    commands = "; ".join(f"nice -n 19 {shlex.quote(sys.executable)} -m {module}" for module in modules)
    silent = subprocess.DEVNULL
    process = subprocess.Popen(["sh", "-c", commands], stdout=silent, stderr=silent, process_group=0)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait()


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What came of a suite: a word for it, the seed of its made-up examples, and what passed only when it was tried again."""

    word: str
    seed: int
    unsteady: tuple[str, ...] = ()


def run(suite: Suite) -> Outcome:
    """Run it, and what failed once more, alone: what passes then depends on the moment, and is named."""
    seed = random.SystemRandom().getrandbits(32)
    with tempfile.TemporaryDirectory() as cache:
        pytest = [sys.executable, "-m", "pytest", "-m", suite.marked, f"--hypothesis-seed={seed}", "-o", f"cache_dir={cache}"]
        if subprocess.run([*pytest, *suite.distribution], check=False).returncode == 0:
            return Outcome(word="passed", seed=seed)
        failed = _failed(Path(cache))
        print(f"\nonce more, what failed of: {suite.name}", flush=True)
        again = subprocess.run([*pytest, "--last-failed", "--last-failed-no-failures", "none", "-v"], check=False)
        word = "UNSTEADY" if again.returncode == 0 else "FAILED"
        return Outcome(word=word, seed=seed, unsteady=tuple(sorted(failed - _failed(Path(cache)))))


def _failed(cache: Path) -> set[str]:
    """The tests that failed when they were run last, as pytest notes them."""
    noted = cache / "v" / "cache" / "lastfailed"
    return set(json.loads(noted.read_text())) if noted.is_file() else set()


def _missing(suite: Suite) -> Iterator[tuple[str, str]]:
    for tool, package in suite.tools.items():
        if not (Path(tool).exists() if tool.startswith("/") else shutil.which(tool)):
            yield tool, package


def why_not(suite: Suite) -> Iterator[str]:
    """Why it cannot run here."""
    if suite.needs_root and os.geteuid() != 0:
        yield "needs root"
    if suite.needs_folder and not os.environ.get(suite.needs_folder):
        yield f"{suite.needs_folder}=FOLDER is not given"
    for tool, package in _missing(suite):
        yield "no NVIDIA driver" if tool == _NVIDIA else f"{tool} is missing" + (f" (Debian: {package})" if package else "")
    if suite.probe and os.geteuid() == 0:
        done = subprocess.run(["sh", "-euc", suite.probe], capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"this machine lets even root make no containers: {done.stderr.strip()}"
    if "go" in suite.tools and shutil.which("go"):
        said = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False).stdout
        version = re.match(r"go1\.(\d+)", said)
        if version is None or int(version[1]) != 26:
            yield f"needs Go 1.26, not {said.strip()}"
            return
    for module in suite.fetched:
        done = subprocess.run([sys.executable, "-m", module], capture_output=True, text=True, check=False)
        if done.returncode:
            # A client of a registry says why before Python says where.
            why = (done.stderr.partition("Traceback (most recent call last)")[0].strip() or done.stderr.strip()).splitlines()
            yield f"{module} cannot be fetched: {why[-1] if why else 'no reason given'}"


def _install(packages: set[str]) -> None:
    if packages and os.geteuid() == 0 and shutil.which("apt-get"):
        subprocess.run(["apt-get", "-q", "update"], check=False, stdout=subprocess.DEVNULL)
        command = ["apt-get", "-q", "install", "-y", "--no-install-recommends", *sorted(packages)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main())
