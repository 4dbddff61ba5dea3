"""An ambush: the runtime's `partition` on a node is killed when it makes a certain write to the API server.

The write itself is refused, so that it is as if the death had come right before it. The API server is asked to ask us, by a
webhook; what kubelets, controllers and the other containers write passes.
"""

import base64
import ctypes
import json
import os
import signal
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.cluster_fixture import CONDITION
from tests.e2e.cluster.node import Node
from tests.support.certificates import certify

_CLONE_NEWNET = 0x40000000
_NAME = "ambush.tests.gpushare.dev"
_RUNTIME = f"system:serviceaccount:{NAMESPACE}:gpushare-node"
_NODE_OF_POD = "authentication.kubernetes.io/node-name"


class WriteInterceptor:
    """What is to happen at one node's writes."""

    def __init__(self) -> None:
        self._node: Node | None = None
        self._write = ""
        self._left = 0

    @property
    def is_over(self) -> bool:
        """Whether somebody has died."""
        return not self._left

    def lay(self, node: Node, write: str, number: int = 1) -> None:
        """Whoever makes the write of this name so many times dies: `lease`, `labels`, `taints`, `condition Ready`."""
        self._node, self._write, self._left = node, write, number

    def decide(self, request: dict[str, Any]) -> bool:
        """Whether the write may pass."""
        nodes = request["userInfo"].get("extra", {}).get(_NODE_OF_POD, [])
        if self._node is None or self._node.name not in nodes or not self._left or _name_of(request) != self._write:
            return True
        partition = self._node.processes("apply", "--hold")
        if not partition:
            # Of another container.
            return True
        self._left -= 1
        if self._left:
            return True
        for pid in partition:
            os.kill(pid, signal.SIGKILL)
        return False


def _name_of(request: dict[str, Any]) -> str:
    """What a write is about."""
    if request["resource"]["resource"] == "leases":
        return "lease"
    before, after = request["oldObject"], request["object"]
    if request.get("subResource") == "status":
        return f"condition {next((one['reason'] for one in after['status']['conditions'] if one['type'] == CONDITION), '')}"
    if before["spec"].get("taints") != after["spec"].get("taints"):
        return "taints"
    return "labels" if before["metadata"].get("labels") != after["metadata"].get("labels") else "annotations"


class _Answer(BaseHTTPRequestHandler):
    """One question of the API server."""

    ambush: WriteInterceptor

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        request = review["request"]
        said = {"uid": request["uid"], "allowed": self.ambush.decide(request)}
        body = json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said}).encode()
        # Who asked is dead: the API server may not want to know any more.
        with suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nobody reads it."""


@contextmanager
def ambush(cluster: Cluster, folder: Path) -> Iterator[WriteInterceptor]:
    """An ambush on the cluster's nodes. While it stands, the API server asks at every write of the runtime."""
    laid = WriteInterceptor()
    certificate, key = certify(folder / "ambush.crt")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    server = _serve(cluster, type("Answer", (_Answer,), {"ambush": laid}))
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1})
    thread.start()
    try:
        cluster.apply(_webhook(server.server_port, certificate))
        yield laid
    finally:
        cluster.kubectl("delete", "validatingwebhookconfiguration", _NAME, "--ignore-not-found")
        server.shutdown()
        thread.join()
        server.server_close()


def _serve(cluster: Cluster, answer: type[BaseHTTPRequestHandler]) -> HTTPServer:
    """A server in the cluster's network: a thread can go there alone, and what it binds stays there."""
    made: list[HTTPServer] = []

    def bind() -> None:
        with cluster.network.path.open() as network:
            if ctypes.CDLL(None, use_errno=True).setns(network.fileno(), _CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "setns")
        made.append(HTTPServer(("127.0.0.1", 0), answer))

    thread = threading.Thread(target=bind)
    thread.start()
    thread.join()
    return made[0]


def _webhook(port: int, certificate: Path) -> dict[str, Any]:
    """Of nodes and Leases, and of the runtime alone. Events are no steps: they are told by a thread of its own."""
    rules = [
        {
            "apiGroups": ["", "coordination.k8s.io"],
            "apiVersions": ["v1"],
            "operations": ["CREATE", "UPDATE", "DELETE"],
            "resources": ["nodes", "nodes/status", "leases"],
        }
    ]
    where = {"url": f"https://127.0.0.1:{port}/", "caBundle": base64.b64encode(certificate.read_bytes()).decode()}
    webhook = {
        "name": _NAME,
        "rules": rules,
        "clientConfig": where,
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "matchConditions": [{"name": "runtime", "expression": f"request.userInfo.username == '{_RUNTIME}'"}],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration"}
    return {**kind, "metadata": {"name": _NAME}, "webhooks": [webhook]}
