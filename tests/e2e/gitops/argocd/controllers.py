"""Argo CD's application controller and repo server as processes in a cluster's network, and what tests ask of them."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import proxy
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.machine import PATIENCE, MachineError, start, stop
from tests.e2e.gitops.argocd.program import custom_resources, program
from tests.support import helm

NAMESPACE = "argocd"
RESYNC = 15
"""Seconds after which the controller compares an Application again, though nothing has changed. Usually 180."""

_API = "/apis/argoproj.io/v1alpha1"
_REFRESH = "argocd.argoproj.io/refresh"
_REDIS = "127.0.0.1:6379"
_REPO_SERVER = "127.0.0.1:8081"
_STAND_INS = ("gpg", "gpg-wrapper.sh", "git-verify-wrapper.sh")
"""Programs that the repo server calls or looks for, though no commit is signed."""

Object = dict[str, Any]


class ArgoCd:
    """Argo CD on a cluster. Its files are under `folder`; its processes end with the cluster's, whose network they are in."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.pids: dict[str, int] = {}

    def start(self) -> None:
        """Install its objects and start its processes."""
        for definition in custom_resources():
            self.cluster.kubectl("apply", "--server-side", "--filename", definition)
        self.cluster.await_kinds(*(f"{kind}.argoproj.io" for kind in ("applications", "appprojects", "applicationsets")))
        self.cluster.apply(*_objects())
        self.folder.mkdir()
        for part in ("redis", "repo-server", "application-controller", "applicationset-controller"):
            self.start_part(part)

    def start_part(self, part: str) -> None:
        """Start one of the processes, also again."""
        command, environment = {
            "redis": self._redis,
            "repo-server": self._repo_server,
            "application-controller": self._controller,
            "applicationset-controller": self._sets,
        }[part]()
        command = [str(word) for word in self.cluster.network.command(*command)]
        self.pids[part] = start(command, self.folder / f"{part}.log", environment)

    def stop(self) -> None:
        """End all of them."""
        stop([*self.pids.values()], seconds=5)

    def _redis(self) -> tuple[list[str], dict[str, str]]:
        return ["redis-server", "--port", _REDIS.rpartition(":")[2], "--save", "", "--dir", str(self.folder)], {}

    def _repo_server(self) -> tuple[list[str], dict[str, str]]:
        tools, temporary = self.folder / "tools", self.folder / "tmp"
        if not tools.is_dir():
            tools.mkdir()
            temporary.mkdir()
            for name in _STAND_INS:
                (tools / name).write_text("#!/bin/sh\n")
                (tools / name).chmod(stat.S_IRWXU)
            (tools / "helm").symlink_to(helm.helm(3))
            (tools / "kubectl").symlink_to(helm.kubectl())
        command = [
            str(program()),
            "--redis",
            _REDIS,
            "--disable-tls",
            "--port",
            _REPO_SERVER.rpartition(":")[2],
            # Otherwise a commit is seen after three minutes.
            "--revision-cache-expiration",
            "1s",
        ]
        return command, self._environment("repo-server") | {
            "ARGOCD_GPG_ENABLED": "false",
            "PATH": f"{tools}:{os.environ['PATH']}",
            "TMPDIR": str(temporary),
            "HOME": str(temporary),
        }

    def _controller(self) -> tuple[list[str], dict[str, str]]:
        command = [
            str(program()),
            "--kubeconfig",
            str(self._kubeconfig),
            "--namespace",
            NAMESPACE,
            "--repo-server",
            _REPO_SERVER,
            "--repo-server-plaintext",
            "--redis",
            _REDIS,
            "--app-resync",
            str(RESYNC),
            "--app-resync-jitter",
            "0",
            "--self-heal-timeout-seconds",
            "1",
            # For so long it shows no error of the repo server. Usually 180.
            "--repo-error-grace-period-seconds",
            str(RESYNC),
            # Without it an Application does not say which of its objects are ill, and why.
            "--persist-resource-health",
        ]
        return command, self._environment("application-controller") | {
            "ARGOCD_FAKE_IN_CLUSTER": "true",
            "POD_NAMESPACE": NAMESPACE,
            "ARGOCD_CONTROLLER_REPLICAS": "1",
        }

    def _sets(self) -> tuple[list[str], dict[str, str]]:
        # Its usual ports are those of the other parts.
        ports = ("--metrics-addr", ":8090", "--probe-addr", ":8091", "--webhook-addr", ":8092")
        command = [
            str(program()),
            "--kubeconfig",
            str(self._kubeconfig),
            "--namespace",
            NAMESPACE,
            *ports,
            "--argocd-repo-server",
            _REPO_SERVER,
            "--repo-server-plaintext",
        ]
        return command, self._environment("applicationset-controller")

    def _environment(self, part: str) -> dict[str, str]:
        return {"ARGOCD_BINARY_NAME": f"argocd-{part}", "KUBECONFIG": str(self._kubeconfig)}

    @property
    def logs(self) -> tuple[Path, ...]:
        """Of the part that asks the API server all the time; that of ApplicationSets says nothing of an outage."""
        return (self.folder / "application-controller.log",)

    @property
    def _kubeconfig(self) -> Path:
        return self.cluster.control_plane.folder / "admin.kubeconfig"

    # --- Applications ---

    def application(self, name: str) -> Object | None:
        """As the API server has it; None if there is none of that name."""
        found = self.cluster.read(f"{_API}/namespaces/{NAMESPACE}/applications/{name}")
        return dict(found) if found else None

    def state(self, name: str) -> tuple[str, str]:
        """Its sync status and its health; empty words while nothing has been compared."""
        return _state(self.application(name))

    def revision(self, name: str) -> str:
        """The commit that was compared last."""
        return _revision(self.application(name))

    def await_state(self, name: str, *wanted: str, revision: str = "", seconds: float = PATIENCE) -> None:
        """Until it has this sync status and health, at this commit if one is given. MachineError with what it says instead."""

        def is_there() -> bool:
            # At one moment: its state may be that of the commit before.
            found = self.application(name)
            return _state(found) == wanted and revision in ("", _revision(found))

        try:
            self.cluster.wait(is_there, f"{name} is {' and '.join(wanted)}", seconds)
        except MachineError as error:
            raise MachineError(f"{error}: {self.explain(name)}") from error

    def explain(self, name: str) -> str:
        """What keeps it from being in sync or healthy."""
        status = (self.application(name) or {}).get("status", {})
        resources = [one for one in status.get("resources", ()) if one.get("status") != "Synced" or _is_ill(one)]
        operation = status.get("operationState", {})
        return yaml.safe_dump([status.get("conditions"), operation.get("phase"), operation.get("message"), resources])

    def resource(self, name: str, kind: str, named: str) -> Mapping[str, Any]:
        """What an Application says of one of its objects."""
        status = (self.application(name) or {}).get("status", {})
        return next((one for one in status.get("resources", ()) if (one["kind"], one["name"]) == (kind, named)), {})

    def comparisons(self, name: str) -> str:
        """When the controller has compared the Application last."""
        return str((self.application(name) or {}).get("status", {}).get("reconciledAt", ""))

    def await_resyncs(self, name: str, count: int) -> None:
        """Until the controller has compared it so many more times by itself, one every RESYNC seconds."""
        for _ in range(count):
            before = self.comparisons(name)
            self.cluster.wait(lambda at=before: self.comparisons(name) != at, f"{name} is compared again")

    def await_comparisons(self, name: str, count: int) -> None:
        """Until it has been compared so many more times, each asked for: the request goes with what the comparison writes."""
        for _ in range(count):
            self.refresh(name)
            self.cluster.wait(lambda: not self._is_asked(name), f"{name} is compared again")

    def refresh(self, name: str) -> None:
        """Ask the controller to compare it at once, as a webhook does. MachineError if there is none of that name."""
        path = f"{_API}/namespaces/{NAMESPACE}/applications/{name}"
        change = json.dumps({"metadata": {"annotations": {_REFRESH: "normal"}}})
        answer = proxy.send(self.cluster.control_plane.proxy, "PATCH", path, change, "application/merge-patch+json")
        if answer.refusal:
            raise MachineError(f"PATCH {path}: {answer.refusal}")

    def _is_asked(self, name: str) -> bool:
        return _REFRESH in (self.application(name) or {}).get("metadata", {}).get("annotations", {})

    def syncs(self, name: str) -> int:
        """How many syncs its history has."""
        return len((self.application(name) or {}).get("status", {}).get("history", ()))


def _state(application: Object | None) -> tuple[str, str]:
    status = (application or {}).get("status", {})
    return status.get("sync", {}).get("status", ""), status.get("health", {}).get("status", "")


def _revision(application: Object | None) -> str:
    return str((application or {}).get("status", {}).get("sync", {}).get("revision", ""))


def _is_ill(resource: Mapping[str, Any]) -> bool:
    return bool(resource.get("health", {}).get("status", "Healthy") != "Healthy")


def _objects() -> list[Object]:
    """What Argo CD's installation brings, as far as its two parts read it."""
    labels = {"app.kubernetes.io/part-of": "argocd"}

    def item(kind: str, name: str, **fields: Any) -> Object:
        metadata = {"name": name, "namespace": NAMESPACE, "labels": labels}
        return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **fields}

    maps = ("argocd-cm", "argocd-rbac-cm", "argocd-gpg-keys-cm", "argocd-ssh-known-hosts-cm", "argocd-tls-certs-cm")
    everything = {
        "sourceRepos": ["*"],
        "destinations": [{"namespace": "*", "server": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
    }
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}},
        *(item("ConfigMap", name) for name in maps),
        item("Secret", "argocd-secret", stringData={"server.secretkey": "secret-key-of-the-tests"}),
        item("AppProject", "default", spec=everything) | {"apiVersion": "argoproj.io/v1alpha1"},
    ]
