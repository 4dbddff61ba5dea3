"""Intents compiled for the test cluster, as users compile them, and what their charts need of it."""

import subprocess
import sys
from pathlib import Path

from tests.cluster.cluster import Cluster
from tests.tools import helm

NAMESPACE = "gpu-system"


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
    """Make a namespace; that it is there is fine. Pods can be made in it once its ServiceAccount is."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    account = ("get", "serviceaccount", "default", "--namespace", name)
    cluster.wait(lambda: cluster.try_kubectl(*account).returncode == 0, f"namespace {name} has its ServiceAccount")
