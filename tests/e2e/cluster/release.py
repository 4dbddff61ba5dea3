"""The chart of a bundle as a release of Helm, in either major, with the image of the tests."""

import os
import subprocess
from pathlib import Path

from tests.e2e.cluster.bundles import NAMESPACE
from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.images import RUNTIME
from tests.support import helm

NAME = "gpushare"
KEPT_KINDS = "configmaps,resourceclaimtemplates"
"""What an uninstallation keeps, and one without hooks."""
_REPOSITORY, _, _TAG = RUNTIME.rpartition(":")
IMAGE = ("--set-string", f"image.repository={_REPOSITORY},image.tag={_TAG},image.pullPolicy=Never")
UNCHECKED = "--disable-openapi-validation"
"""Helm compares no object with the API server's definitions, which takes half of its time: `test_examples.py` has it do so."""


class Release:
    """The release on a cluster."""

    def __init__(self, cluster: Cluster, major: int = 4) -> None:
        self.cluster = cluster
        self.major = major

    def install(self, bundle: Path, *arguments: str) -> str:
        """As the bundle's README says: install, or upgrade what is there."""
        # No test waits as long as a restart of feature discovery may take.
        quick = ("--set", "releaseAfter=5s")
        return self.helm("upgrade", "--install", NAME, str(bundle / "chart"), *IMAGE, *quick, *arguments)

    def rollback(self, *arguments: str) -> str:
        """To the revision before, or the one given."""
        return self.helm("rollback", NAME, *arguments)

    def uninstall(self, *arguments: str) -> str:
        """With the chart's hook."""
        return self.helm("uninstall", NAME, *arguments)

    def remove(self) -> None:
        """Without the hook, and with what is kept then."""
        self.uninstall("--no-hooks", "--wait", "--timeout", "60s")
        self.cluster.kubectl("delete", KEPT_KINDS, "--all-namespaces", "--selector", "app.kubernetes.io/name=gpushare")

    def is_there(self) -> bool:
        """Whether Helm knows it, in whatever state."""
        everything = ("--all",) if self.major == 3 else ()  # what Helm 4 lists anyway
        return NAME in self.helm("list", *everything, "--short").split()

    def helm(self, *arguments: str) -> str:
        """Helm's words; CalledProcessError with what it said on stderr if it fails."""
        done = self.try_helm(*arguments)
        if done.returncode:
            raise subprocess.CalledProcessError(done.returncode, done.args, done.stdout, done.stderr)
        return done.stdout

    def try_helm(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """The same, for what may fail."""
        command = self.cluster.network.command(helm.helm(self.major), *arguments, "--namespace", NAMESPACE)
        kubeconfig = self.cluster.control_plane.folder / "admin.kubeconfig"
        return subprocess.run(
            [str(part) for part in command],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        )
