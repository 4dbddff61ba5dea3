"""Intents compiled for the test cluster, as users compile them, and what their charts need of it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.common_agents import AGENTS, WORK
from tests.e2e.cluster.pods import GPU, pod, refusal
from tests.support import helm

NAMESPACE = "gpu-system"
NAMESPACES = sorted({item["metadata"]["namespace"] for item in (*AGENTS.values(), *WORK.values())} | {"physics", "storage"})


def compiled(text: str, folder: Path) -> Path:
    """The bundle of an intent in `folder`; the same folder again is the next generation."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "intent.yaml").write_text(text)
    command = [sys.executable, "-m", "gpushare", "compile", str(folder / "intent.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "bundle"


def rendered(bundle: Path, *arguments: str) -> str:
    """The objects of its chart, as GitOps tools render them."""
    command = [str(helm.helm()), "template", "gpushare", str(bundle / "chart"), "--namespace", NAMESPACE, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def namespace(cluster: Cluster, name: str, **labels: str) -> None:
    """Make a namespace; that it is there is fine. Pods can be made in it once its ServiceAccount is.

    One that ends takes nothing new, and is made again when it has gone.
    """
    path = f"/api/v1/namespaces/{name}"
    cluster.wait(lambda: "deletionTimestamp" not in (cluster.read(path) or {}).get("metadata", {}), f"{name} does not end")
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    account = f"{path}/serviceaccounts/default"
    cluster.wait(lambda: cluster.read(account) is not None, f"namespace {name} has its ServiceAccount")


@contextmanager
def admitting(cluster: Cluster, text: str, folder: Path, *arguments: str) -> Iterator[Path]:
    """The bundle of an intent, while its policies are in force, and the namespaces of the pods that test them."""
    namespace(cluster, NAMESPACE, **{"pod-security.kubernetes.io/enforce": "privileged"})
    for name in NAMESPACES:
        namespace(cluster, name)
    namespace(cluster, "agents", **{"gpushare.dev/admission": "exempt"})
    for name in ("nvidia", "nvidia-cdi", "gvisor"):
        cluster.apply({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": name}, "handler": name})
    bundle = compiled(text, folder)
    objects = rendered(bundle, "--skip-tests", *arguments)
    try:
        cluster.kubectl("apply", "--server-side", "--filename", "-", stdin=objects)
        # The API server takes a moment to put policies into force, and each on its own: pods that must be refused tell when.
        for doomed in (pod(({GPU: 1},), nodeName="any"), pod(hostPID=True)):
            cluster.wait(lambda item=doomed: refusal(cluster, item), "the policies are in force")
        yield bundle
    finally:
        cluster.kubectl("delete", "--ignore-not-found", "--filename", "-", stdin=objects)
