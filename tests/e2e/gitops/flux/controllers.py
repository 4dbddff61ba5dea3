"""Flux's controllers as processes in a cluster's network, and what tests ask of them."""

import sys
import time
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.machine import PATIENCE, MachineError, start, stop
from tests.e2e.gitops.flux.program import custom_resources, program
from tests.support import helm

NAMESPACE = "flux-system"
KINDS = {
    "gitrepositories": "source.toolkit.fluxcd.io/v1",
    "kustomizations": "kustomize.toolkit.fluxcd.io/v1",
    "helmreleases": "helm.toolkit.fluxcd.io/v2",
    "helmcharts": "source.toolkit.fluxcd.io/v1",
    "helmrepositories": "source.toolkit.fluxcd.io/v1",
}

_ARTIFACTS = "127.0.0.1:9790"
_GIT_PORT = "9791"

Object = dict[str, Any]


class Flux:
    """Flux on a cluster. Its files are under `folder`; its processes end with the cluster's, whose network they are in."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.pids: dict[str, int] = {}

    def start(self) -> None:
        """Install its definitions and start its processes."""
        for definition in custom_resources():
            self.cluster.kubectl("apply", "--server-side", "--filename", definition)
        self.cluster.await_kinds(*(f"{kind}.{version.partition('/')[0]}" for kind, version in KINDS.items()))
        self.cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
        for name in ("", "artifacts", "repositories", "tmp"):
            (self.folder / name).mkdir()
        self._start("git", sys.executable, "-m", "tests.e2e.gitops.flux.git_server", _GIT_PORT, self.folder / "repositories")
        self._start(
            "source-controller",
            program("source-controller"),
            "--storage-path",
            self.folder / "artifacts",
            "--storage-addr",
            _ARTIFACTS,
            "--storage-adv-addr",
            _ARTIFACTS,
            "--metrics-addr",
            "127.0.0.1:9792",
            "--health-addr",
            "127.0.0.1:9793",
            "--requeue-dependency",
            "2s",
        )
        self._start(
            "kustomize-controller",
            program("kustomize-controller"),
            "--metrics-addr",
            "127.0.0.1:9794",
            "--health-addr",
            "127.0.0.1:9795",
            "--requeue-dependency",
            "2s",
        )
        self._start(
            "helm-releases",
            sys.executable,
            "-m",
            "tests.e2e.gitops.flux.helm_releases",
            helm.helm(),
            helm.kubectl(),
            self.folder / "artifacts",
        )

    def _start(self, part: str, *command: str | Path) -> None:
        environment = {
            "KUBECONFIG": str(self.cluster.control_plane.folder / "admin.kubeconfig"),
            "RUNTIME_NAMESPACE": NAMESPACE,
            "TMPDIR": str(self.folder / "tmp"),
            "HOME": str(self.folder / "tmp"),
        }
        self.pids[part] = start(self.cluster.network.command(*command), self.folder / f"{part}.log", environment)

    def stop(self) -> None:
        """End all of them."""
        stop([*self.pids.values()], seconds=5)

    def address(self, repository: str) -> str:
        """The URL of a repository in the folder `repositories`."""
        return f"http://127.0.0.1:{_GIT_PORT}/{repository}"

    def reconcile(self, kind: str, name: str) -> None:
        """Let the controller of an object look at it at once, and wait until that is done."""
        moment = self.ask(kind, name)

        def is_done() -> bool:
            return bool((self.read(kind, name) or {}).get("status", {}).get("lastHandledReconcileAt") == moment)

        self.cluster.wait(is_done, f"{kind} {name} is reconciled")

    def ask(self, kind: str, name: str) -> str:
        """Ask the controller of an object to look at it at once, as a webhook does; what marks the request."""
        moment = str(time.monotonic_ns())
        change = (f"reconcile.fluxcd.io/requestedAt={moment}", "--overwrite", "--namespace", NAMESPACE)
        self.cluster.kubectl("annotate", kind, name, *change)
        return moment

    def read(self, kind: str, name: str) -> Object | None:
        """An object of Flux as the API server has it; None if there is none of that name."""
        found = self.cluster.read(f"/apis/{KINDS[kind]}/namespaces/{NAMESPACE}/{kind}/{name}")
        return dict(found) if found else None

    def names(self, kind: str) -> set[str]:
        """Those of a kind."""
        return {str(item["metadata"]["name"]) for item in self.cluster.read(f"/apis/{KINDS[kind]}/{kind}")["items"]}

    def condition(self, kind: str, name: str, wanted: str = "Ready") -> Object:
        """A condition that describes the newest generation of an object; empty while there is none."""
        item = self.read(kind, name) or {}
        current = item.get("metadata", {}).get("generation")
        found = item.get("status", {}).get("conditions", ())
        return next((one for one in found if one["type"] == wanted and one.get("observedGeneration", current) == current), {})

    def await_commit(self, name: str, commit: str, seconds: float = PATIENCE) -> None:
        """Until the Kustomization is Ready with this commit. MachineError with what it says instead."""

        def is_there() -> bool:
            applied = (self.read("kustomizations", name) or {}).get("status", {}).get("lastAppliedRevision", "")
            return applied.endswith(commit) and self.condition("kustomizations", name).get("status") == "True"

        try:
            self.cluster.wait(is_there, f"{name} is Ready with {commit}", seconds)
        except MachineError as error:
            raise MachineError(f"{error}: {self.explain()}") from error

    def explain(self) -> str:
        """What each object of Flux says of itself."""
        said = {f"{kind}/{name}": self.condition(kind, name).get("message") for kind in KINDS for name in self.names(kind)}
        return yaml.safe_dump(said)
