"""A cluster as a whole: up, down, and what tests ask of it.

Everything of a cluster carries its name: folder, network namespace, cgroups. So `down` finds it all again, also after a
crash, and clusters of different names do not meet.
"""

import http
import json
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tests.e2e.cluster import images, proxy
from tests.e2e.cluster.control_plane import ControlPlane
from tests.e2e.cluster.machine import NODE_ADDRESSES, PATIENCE, Cgroup, MachineError, Network, stop
from tests.e2e.cluster.node import Driver, Node

ROOT = Path("/var/tmp/gpushare-clusters")  # overlays need a real file system


DEFAULT_NAME = "gpushare"


class Cluster:
    """A cluster of up to four real nodes; without nodes it has an API server and its controllers."""

    def __init__(self, name: str = DEFAULT_NAME, nodes: int = 2) -> None:
        self.name = name
        self.folder = ROOT / name
        self.network = Network(name)
        self.nodes = tuple(Node(name, number, self.folder / f"node-{number + 1}", self.network) for number in range(nodes))
        names = tuple(node.name for node in self.nodes)
        self.control_plane = ControlPlane(self.folder / "control-plane", self.network, names)
        self._kinds: dict[tuple[str, str], Any] = {}
        """What the API server says of kinds, by version and name."""
        self.describe: Callable[[], str] = str
        """What is so instead, for the error of a wait that gives up."""

    @classmethod
    def running(cls, name: str = DEFAULT_NAME) -> "Cluster":
        """The cluster of that name, which runs. A reboot leaves its folder, and no network."""
        cluster = cls(name)
        parts: tuple[ControlPlane | Node, ...] = (cluster.control_plane, *cluster.nodes)
        for part in parts:
            file = part.folder / "pids.json"
            if not (file.is_file() and cluster.network.path.exists()):
                raise MachineError(f"no cluster {name!r} runs: make cluster-up{cluster.chosen}")
            part.pids = json.loads(file.read_text())
        return cluster

    @property
    def chosen(self) -> str:
        """How `make` is told of this cluster, if it has to be."""
        return "" if self.name == DEFAULT_NAME else f" NAME={self.name}"

    def up(self, driver: Callable[[Node], Driver] = lambda node: Driver()) -> None:
        """Bring it up, from nothing; what a crash left of it goes first."""
        self.down()
        ROOT.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir()
        sandbox = images.pause(self.folder) if self.nodes else None
        self.network.make()
        self.control_plane.start()
        for node in self.nodes:
            node.start(driver(node))
            assert sandbox is not None
            node.load(sandbox)
        self.wait(self.control_plane.proxy.exists, "kubectl's proxy listens")
        runtime = {"kind": "RuntimeClass", "metadata": {"name": "nvidia"}, "handler": "nvidia"}
        self.apply({"apiVersion": "node.k8s.io/v1", **runtime})
        self.wait(lambda: all(self._is_ready(node.name) for node in self.nodes), "all nodes are ready")

    def down(self) -> None:
        """Leave nothing. Kubelets go first, or they start anew what is ended; etcd goes last: the API server waits for it."""
        everything = set(self.network.processes())
        for name in ("kubelet", "kube-scheduler", "kube-controller-manager", "kube-apiserver"):
            stop([pid for pid in everything if _program_of(pid) == name], seconds=0)
        # What a killed run left under this name may have had more nodes than this one.
        cgroups = [Cgroup(f"{self.name}-node-{number + 1}") for number in range(len(NODE_ADDRESSES))]
        deadline = time.monotonic() + PATIENCE
        while left := set(self.network.processes()).union(*(cgroup.processes() for cgroup in cgroups)):
            if time.monotonic() > deadline:
                raise MachineError(f"does not end: {left}")
            stop(sorted(left), seconds=0)
        for cgroup in cgroups:
            cgroup.remove()
        self.network.remove()
        # Not ROOT as well: another cluster may be making its folder in it at this moment.
        if self.folder.exists():
            shutil.rmtree(self.folder)

    def kubectl(self, *arguments: str | Path, stdin: str | None = None, check: bool = True) -> str:
        """kubectl as administrator; what it prints. MachineError with its words if it fails."""
        done = self.try_kubectl(*arguments, stdin=stdin)
        if check and done.returncode:
            raise MachineError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done.stdout

    def try_kubectl(self, *arguments: str | Path, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """The same, for what may be refused."""
        return self.control_plane.kubectl(*arguments, stdin=stdin)

    def get(self, *arguments: str) -> Any:
        """An object, or a list of them, as the API server has it."""
        return json.loads(self.kubectl("get", *arguments, "--output", "json"))

    def read(self, path: str, **query: str) -> Any:
        """The same by its path, for waiting; None where there is no such thing."""
        text = self.control_plane.read(path, **query)
        return None if text is None else json.loads(text)

    def write(self, method: str, path: str, body: Any = None, form: str = "application/json", **query: str) -> None:
        """A request that changes something, in a hundredth of the time of a kubectl; that there is nothing there is fine."""
        wanted = f"{path}?{urlencode({'fieldManager': 'tests', **query} if method == 'PATCH' else query)}"
        answer = proxy.send(self.control_plane.proxy, method, wanted, None if body is None else json.dumps(body), form)
        if answer.complaint and answer.status != http.HTTPStatus.NOT_FOUND:
            raise MachineError(f"{method} {wanted}: {answer.complaint}")

    def empty(self, *paths: str) -> None:
        """Delete all that the lists at these paths have now, pods after a second's grace, and wait until it is gone."""
        doomed = {path: self._uids(path) for path in paths}
        for path in paths:
            self.write("DELETE", path, gracePeriodSeconds="1", propagationPolicy="Background")
        for path, uids in doomed.items():
            self.wait(lambda path=path, uids=uids: uids.isdisjoint(self._uids(path)), f"what {path} had is gone")

    def _uids(self, path: str) -> set[str]:
        return {str(one["metadata"]["uid"]) for one in (self.read(path) or {"items": ()})["items"]}

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects, by server-side apply, as `kubectl apply --server-side --force-conflicts` does."""
        for item in objects:
            proxy.apply(self.control_plane.proxy, self._path(item), json.dumps(item))

    def _path(self, item: dict[str, Any]) -> str:
        """Where the object is, or is to be; in namespace `default` if it names none and needs one."""
        version, metadata = item["apiVersion"], item["metadata"]
        group = "/api/v1" if version == "v1" else f"/apis/{version}"
        if (version, item["kind"]) not in self._kinds:
            kinds = (self.read(group) or {"resources": ()})["resources"]
            self._kinds |= {(version, kind["kind"]): kind for kind in kinds if "/" not in kind["name"]}
        kind = self._kinds[version, item["kind"]]
        where = f"/namespaces/{metadata.get('namespace', 'default')}" if kind["namespaced"] else ""
        return f"{group}{where}/{kind['name']}/{metadata['name']}"

    def wait(self, condition: Callable[..., Any], what: str, seconds: float = PATIENCE) -> Any:
        """Until the condition holds; its value. MachineError that says what did not come true, and what is so instead."""
        begun = time.monotonic()
        while not (value := condition()):
            waited = time.monotonic() - begun
            if waited > seconds:
                raise MachineError(f"after {seconds:.0f} s it is not true that {what}\n{self.describe()}".rstrip())
            # The longer it takes, the rarer it is asked: each look takes time from what is waited for.
            time.sleep(min(0.1 + waited / 20, 1))
        return value

    def await_kinds(self, *names: str) -> None:
        """Until kubectl knows these kinds, such as `podmonitors.monitoring.coreos.com`, of definitions that are new.

        A definition may be established, and the API server answer at the path of its kind, before its list of kinds has it.
        """
        for name in names:
            asked = ("get", name, "--all-namespaces")
            self.wait(lambda asked=asked: self.try_kubectl(*asked).returncode == 0, f"the API server knows {name}")

    def _is_ready(self, node: str) -> bool:
        found = self.read(f"/api/v1/nodes/{node}")
        conditions = found["status"].get("conditions", []) if found else []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _program_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[0].rpartition(b"/")[2].decode()
    except OSError:
        return ""
