"""etcd, API server, controller manager and scheduler of one cluster, as real processes in its network namespace."""

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from tests.e2e.cluster import proxy
from tests.e2e.cluster.machine import (
    API_SERVICE,
    NODE_ADDRESSES,
    PATIENCE,
    SERVICES,
    MachineError,
    Network,
    is_running,
    start,
    stop,
)
from tests.e2e.cluster.programs import program
from tests.e2e.cluster.proxy import Answer
from tests.support import helm

_ETCD = "http://127.0.0.1:2379"
_ADMIN = "cluster-admin-of-the-tests"
OPERATOR = "operator-of-the-tests"
"""The token of somebody who has the rights that a test gives to group `operators`, and no others."""

_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "None"},
    ],
}


def _program(name: str) -> Path:
    """One of Kubernetes: of the folder that KUBERNETES names if it is there, which has a control plane of another version."""
    given = Path(os.environ.get("KUBERNETES", os.devnull)) / name
    return given if given.is_file() else program(name)


class ControlPlane:
    """Its files are under `folder`. Tokens are fixed: the network namespace is the fence."""

    def __init__(self, folder: Path, network: Network, nodes: tuple[str, ...]) -> None:
        self.folder = folder
        self.network = network
        self.nodes = nodes
        self.pids: dict[str, int] = {}

    def start(self) -> None:
        """Start all, and wait until the API server is ready: two to three seconds."""
        self.folder.mkdir(parents=True)
        self._write_secrets()
        write_kubeconfig(self.folder / "admin.kubeconfig", f"https://{API_SERVICE}", _ADMIN)
        self.start_etcd()
        self.start_api_server()
        self._start_clients()

    def _write_secrets(self) -> None:
        lines = [f'{_ADMIN},admin,admin,"system:masters"', f'{OPERATOR},operator,operator,"operators"']
        lines += [f'{node_token(node)},system:node:{node},{node},"system:nodes"' for node in self.nodes]
        (self.folder / "tokens.csv").write_text("\n".join(lines) + "\n")
        (self.folder / "audit.yaml").write_text(json.dumps(_AUDIT))
        for command in (
            ("openssl", "genrsa", "-out", "service-accounts.key", "2048"),
            ("openssl", "rsa", "-in", "service-accounts.key", "-pubout", "-out", "service-accounts.pub"),
        ):
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def start_etcd(self) -> None:
        """Nothing of it needs to outlive a power cut."""
        self._start(
            "etcd",
            program("etcd"),
            "--data-dir",
            self.folder / "etcd",
            "--listen-client-urls",
            _ETCD,
            "--advertise-client-urls",
            _ETCD,
            "--listen-peer-urls",
            "http://127.0.0.1:2380",
            "--unsafe-no-fsync",
        )

    def start_api_server(self, authorization: Path | None = None) -> None:
        """Start it, also again, and wait until it is ready. `authorization`: an AuthorizationConfiguration."""
        files = self.folder
        authorizers = "--authorization-mode=Node,RBAC" if authorization is None else f"--authorization-config={authorization}"
        self._start(
            "kube-apiserver",
            _program("kube-apiserver"),
            f"--etcd-servers={_ETCD}",
            f"--cert-dir={files / 'certificates'}",
            "--bind-address=0.0.0.0",
            "--secure-port=443",
            f"--advertise-address={NODE_ADDRESSES[0]}",
            f"--service-cluster-ip-range={SERVICES}",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={files / 'service-accounts.pub'}",
            f"--service-account-signing-key-file={files / 'service-accounts.key'}",
            authorizers,
            f"--token-auth-file={files / 'tokens.csv'}",
            "--enable-admission-plugins=NodeRestriction",
            "--allow-privileged=true",
            f"--audit-policy-file={files / 'audit.yaml'}",
            f"--audit-log-path={files / 'audit.log'}",
            # Node names are in no DNS.
            "--kubelet-preferred-address-types=InternalIP",
        )
        self._await_ready()

    def stop_api_server(self) -> None:
        """Nobody gets an answer until it is started again. SIGKILL: it would wait for its watchers."""
        stop([self.pids.pop("kube-apiserver")], seconds=0)

    def _start_clients(self) -> None:
        admin = self.folder / "admin.kubeconfig"
        self._start(
            "kube-controller-manager",
            _program("kube-controller-manager"),
            f"--kubeconfig={admin}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
            f"--service-account-private-key-file={self.folder / 'service-accounts.key'}",
            f"--root-ca-file={self.folder / 'certificates' / 'apiserver.crt'}",
            # Simulated nodes send no heartbeats, and a DaemonSet counts no node that is given up.
            "--node-monitor-grace-period=1h",
            "--node-startup-grace-period=1h",
        )
        self._start(
            "kube-scheduler",
            _program("kube-scheduler"),
            f"--kubeconfig={admin}",
            "--bind-address=127.0.0.1",
            "--leader-elect=false",
        )
        self._start("kubectl-proxy", helm.kubectl(), "--kubeconfig", admin, "proxy", f"--unix-socket={self.proxy}")

    @property
    def proxy(self) -> Path:
        """The socket of `kubectl proxy`."""
        return self.folder / "admin.socket"

    def _start(self, name: str, *command: str | Path) -> None:
        self.pids[name] = start(self.network.command(*command), self.folder / f"{name}.log")
        (self.folder / "pids.json").write_text(json.dumps(self.pids))

    def kubectl(self, *arguments: str | Path, stdin: str | None = None) -> "subprocess.CompletedProcess[str]":
        """kubectl as administrator, in the cluster's network."""
        command = [str(part) for part in self.kubectl_command(*arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, input=stdin, env=self.kubectl_environment())

    def kubectl_command(self, *arguments: str | Path) -> tuple[str | Path, ...]:
        """How it is called."""
        return self.network.command(helm.kubectl(), *arguments)

    def kubectl_environment(self) -> dict[str, str]:
        """By which it finds the API server."""
        return {**os.environ, "KUBECONFIG": str(self.folder / "admin.kubeconfig")}

    def read(self, path: str, **query: str) -> bytes | None:
        """What the API server has at the path, as administrator; None where there is no such thing. MachineError."""
        return proxy.read(self.proxy, path, **query)

    def request(self, method: str, path: str, body: str, form: str, token: str) -> Answer:
        """A bare request, for what kubectl cannot send: it reads before it patches."""
        return proxy.send_as(token, self.network.connect(API_SERVICE, 443), method, path, body=body, form=form)

    def audited(self, name: str) -> list[dict[str, Any]]:
        """What the audit log has of the creation of a pod of that name."""
        entries = map(json.loads, (self.folder / "audit.log").read_text().splitlines())
        return [entry for entry in entries if entry["objectRef"].get("name") == name]

    def _await_ready(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while not self._is_ready():
            if time.monotonic() > deadline or not is_running(self.pids["kube-apiserver"]):
                log = (self.folder / "kube-apiserver.log").read_text()[-2000:]
                raise MachineError(f"the API server does not become ready:\n{log}")
            time.sleep(0.1)

    def _is_ready(self) -> bool:
        try:
            return not self.request("GET", "/readyz", "", "application/json", _ADMIN).complaint
        except (OSError, MachineError):
            return False


def node_token(node: str) -> str:
    """What a node's kubelet shows."""
    return f"token-of-{node}"


def write_kubeconfig(path: Path, server: str, token: str) -> None:
    """JSON is YAML. The API server's certificate is its own; nobody stands in between."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [{"name": "tests", "cluster": {"server": server, "insecure-skip-tls-verify": True}}],
        "users": [{"name": "tests", "user": {"token": token}}],
        "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
    }
    path.write_text(json.dumps(config))
