"""`make cluster-up`, `kubectl`, `cluster-down` as a user calls them, beside the cluster of the tests, and after crashes."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster.cluster import ROOT, Cluster
from tests.e2e.cluster.conftest import by_hand
from tests.e2e.cluster.images import PAUSE
from tests.e2e.cluster.machine import NODE_ADDRESSES, PATIENCE, is_running
from tests.support import paths

CHECKOUT = paths.ROOT


class Make:
    """`make` for one cluster by hand, with the Python of these tests in the place of a virtual environment."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name = name
        program = folder / "venv" / "bin" / "python"
        program.parent.mkdir(parents=True)
        program.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        program.chmod(0o755)
        # `make` installs nothing into an environment with these stamps.
        for stamp in (".program", ".ready", ".suites"):
            (folder / "venv" / stamp).touch()
        self._command = ["make", "--no-print-directory", "-C", str(CHECKOUT), f"VENV={folder / 'venv'}", f"NAME={name}"]
        # Where `make` runs these tests, its own variables are not meant for this one.
        self._environment = {key: value for key, value in os.environ.items() if key not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}

    def __call__(self, target: str, arguments: str = "", *, stdin: str = "") -> "subprocess.CompletedProcess[str]":
        """Run a target to its end."""
        command = [*self._command, *target.split(), f"ARGS={arguments}"]
        return subprocess.run(command, env=self._environment, input=stdin, capture_output=True, text=True, check=False)

    def begin(self, target: str, arguments: str = "") -> "subprocess.Popen[str]":
        """Begin a target, in a process group of its own."""
        command = [*self._command, *target.split(), f"ARGS={arguments}"]
        return subprocess.Popen(
            command,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Iterator[Make]:
    """A cluster's name that nobody else has, for `make`; whatever a test leaves of it goes."""
    made = Make(tmp_path, by_hand(cluster.name))
    yield made
    Cluster(made.name).down()


def left(name: str) -> list[str]:
    """What there is of a cluster, found without the tool's own means: processes, mounts, network, cgroups, folder."""
    found = [str(path) for path in (ROOT / name, Path("/run/netns", name)) if path.exists()]
    found += cgroups_from(f"{name}-node-")
    found += [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if f"{ROOT}/{name}/" in line]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words, cgroups = ((process / file).read_text(errors="replace") for file in ("cmdline", "cgroup"))
        except OSError:
            continue
        # What has ended, and was not yet waited for by whoever that is, is not the tool's any more.
        if (f"{ROOT}/{name}/" in words or f"/{name}-node-" in cgroups) and is_running(int(process.name)):
            found.append(f"process {process.name}: {words}")
    return found


def cgroups_from(beginning: str) -> list[str]:
    """The machine's cgroups with names that begin so. By file descriptors: others may lie deeper than a path can tell."""
    while True:
        # One that goes while it is listed ends the walk.
        with suppress(FileNotFoundError):
            walk = os.fwalk("/sys/fs/cgroup")
            return [f"{above}/{one}" for above, below, _, _ in walk for one in below if one.startswith(beginning)]


@pytest.fixture
def deep() -> Iterator[None]:
    """Cgroups of somebody else, nested until a path to them is longer than any that the kernel takes."""
    hierarchy = next(path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup")) if path.is_dir())
    with ExitStack() as stack:
        above = os.open(hierarchy, os.O_RDONLY)
        stack.callback(os.close, above)
        for number in range(20):
            name = f"somebody-elses-{os.getpid()}-{number}-".ljust(250, "x")
            os.mkdir(name, dir_fd=above)
            stack.callback(os.rmdir, name, dir_fd=above)
            above = os.open(name, os.O_RDONLY, dir_fd=above)
            stack.callback(os.close, above)
        yield


@pytest.mark.usefixtures("deep")
def test_deeply_nested_foreign_cgroups_are_tolerated() -> None:
    assert left("nobody") == []


def pids(name: str) -> dict[str, int]:
    """The programs of a cluster by hand, as `part/program`."""
    files = (ROOT / name).glob("*/pids.json")
    return {f"{file.parent.name}/{one}": pid for file in files for one, pid in json.loads(file.read_text()).items()}


def get(make: Make, *what: str) -> Any:
    """An object of the cluster by hand."""
    done = make("kubectl", " ".join(("get", *what, "--output", "json")))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def is_true(thing: Any, condition: str) -> bool:
    return any(one["type"] == condition and one["status"] == "True" for one in thing["status"].get("conditions", ()))


TWIN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "twin", "namespace": "kube-public"},
    "spec": {
        "nodeSelector": {"kubernetes.io/hostname": "node-1"},
        "hostNetwork": True,
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": PAUSE, "imagePullPolicy": "Never"}],
    },
}
WHERE = ("pod", "twin", "--namespace", "kube-public")


def test_manual_cluster_starts_is_replaced_and_stops_beside_another(make: Make, cluster: Cluster) -> None:
    done = make("cluster-up")
    assert done.returncode == 0, done.stderr
    assert f"make kubectl NAME={make.name} ARGS='get nodes'" in done.stdout
    assert [is_true(node, "Ready") for node in get(make, "nodes")["items"]] == [True, True]
    watch_a_pod_come(make, cluster)
    before = pids(make.name)
    assert make("cluster-up").returncode == 0
    assert [is_true(node, "Ready") for node in get(make, "nodes")["items"]] == [True, True]
    assert get(make, "pods", "--namespace", "kube-public")["items"] == []
    assert not [name for name, pid in before.items() if is_running(pid)]
    assert cluster.get(*WHERE)["status"]["phase"] == "Running", "the other cluster's pod of that name"
    cluster.kubectl("delete", *WHERE)
    for _ in range(2):
        assert make("cluster-down").returncode == 0
        assert left(make.name) == []
    assert cluster.try_kubectl("get", "nodes").returncode == 0


def watch_a_pod_come(make: Make, cluster: Cluster) -> None:
    """A pod of the same name at the same address in both clusters; `kubectl get --watch` tells of it as it comes."""
    watch = make.begin("kubectl", "get pods --namespace kube-public --watch --no-headers")
    try:
        assert make("kubectl", "apply --filename -", stdin=json.dumps(TWIN)).returncode == 0
        assert watch.stdout is not None
        assert select.select([watch.stdout], [], [], PATIENCE)[0], "it tells while it runs"
        assert watch.stdout.readline().startswith("twin")
        assert watch.poll() is None
    finally:
        os.killpg(watch.pid, signal.SIGKILL)
        watch.communicate()
    cluster.apply(TWIN)
    cluster.wait(lambda: is_true(get(make, *WHERE), "Ready") and is_true(cluster.get(*WHERE), "Ready"), "both twins run")
    assert {get(make, *WHERE)["status"]["podIP"], cluster.get(*WHERE)["status"]["podIP"]} == {NODE_ADDRESSES[0]}


def test_kubectl_without_a_cluster_suggests_cluster_up(make: Make) -> None:
    done = make("kubectl", "get nodes")
    assert done.returncode != 0
    assert f"make cluster-up NAME={make.name}" in done.stderr
    assert "Traceback" not in done.stderr


def test_after_a_crash_of_its_programs_nothing_is_left(make: Make) -> None:
    assert make("cluster-up").returncode == 0
    assert make("kubectl", "apply --filename -", stdin=json.dumps(TWIN)).returncode == 0
    deadline = time.monotonic() + PATIENCE
    while not is_true(get(make, *WHERE), "Ready"):
        assert time.monotonic() < deadline
    for name, pid in pids(make.name).items():
        if name.rpartition("/")[2] in ("kubelet", "containerd", "etcd"):
            os.kill(pid, signal.SIGKILL)
    assert left(make.name)
    done = make("cluster-down")
    assert (done.returncode, left(make.name)) == (0, []), done.stderr


@pytest.mark.parametrize("reached", ["control-plane/etcd.log", "node-1/containerd.log", "node-2/kubelet.log"])
def test_nothing_is_left_after_a_killed_cluster_up(make: Make, reached: str) -> None:
    up = make.begin("cluster-up")
    try:
        while not (ROOT / make.name / reached).exists():
            assert up.poll() is None
            time.sleep(0.01)
    finally:
        os.killpg(up.pid, signal.SIGKILL)
        up.communicate()
    assert left(make.name)
    done = make("cluster-down")
    assert (done.returncode, left(make.name)) == (0, []), done.stderr


def test_make_runs_a_part_of_these_tests(make: Make) -> None:
    done = make("test-all SUITE=cluster", "--collect-only -k part_of_these")
    assert done.returncode == 0, done.stdout
    assert [line for line in done.stdout.splitlines() if "::" in line] == [
        "tests/e2e/cluster/test_tool.py::test_make_runs_a_part_of_these_tests"
    ]


def test_invalid_call_prints_the_usage() -> None:
    for arguments in ([], ["upp"], ["--name", "a/b", "up"]):
        command = [sys.executable, "-m", "tests.e2e.cluster", *arguments]
        done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
        assert (done.returncode, "usage: python -m tests.e2e.cluster" in done.stderr) == (2, True)
