"""docs/gitops.md as a person reads it: its commands run in a clone, and push to a repository that the controllers read."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.cluster_fixture import POOL
from tests.e2e.cluster.images import RUNTIME
from tests.e2e.gitops import upstream
from tests.e2e.gitops.repository import IDENTITY
from tests.support import helm
from tests.support.paths import ROOT

ARGO_CD, _, FLUX = (ROOT / "docs" / "gitops.md").read_text().partition("\n## Flux\n")
"""The two parts of the page."""

[INTENT] = re.findall(r"```yaml\n# intent.yaml\n(.*?)```", ARGO_CD, re.DOTALL)
_REPOSITORY, _, _TAG = RUNTIME.rpartition(":")


class Reader:
    """A person with a clone of the repository `origin`, which is read at `address`, and with kubectl for the cluster."""

    def __init__(self, cluster: Cluster, origin: Path, address: str, folder: Path) -> None:
        programs, self.folder = folder / "bin", folder / "clone"
        self._moved = {
            "https://git.example.org/gpu.git": address,
            "registry.example.org/gpushare/node-runtime": _REPOSITORY,
            'tag: "0.1.0"': f'tag: "{_TAG}"',
            "example.org/pool": POOL,
            "  platform:\n": f'  platform:\n    charts: "{upstream.CHARTS}"\n',
        }
        programs.mkdir()
        network = " ".join(map(str, cluster.network.command(helm.kubectl())))
        (programs / "kubectl").write_text(f'#!/bin/sh\nexec {network} "$@"\n')
        (programs / "kubectl").chmod(0o755)
        self._environment = {
            **os.environ,
            **IDENTITY,
            "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig"),
            "PATH": f"{programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        }
        for command in (("init", "--bare", "--initial-branch=main", origin), ("clone", origin, self.folder)):
            subprocess.run(["git", *map(str, command)], env=self._environment, check=True, capture_output=True)

    def write(self, intent: str) -> None:
        """Put an intent of the page into the clone, with the addresses of the tests in place of the page's."""
        for ours, theirs in self._moved.items():
            assert ours in intent
            intent = intent.replace(ours, theirs)
        (self.folder / "intent.yaml").write_text(intent)

    def run(self, command: str) -> str:
        """Run a command in the clone; what it prints."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self._environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def commands(part: str) -> Iterator[str]:
    """Yield the commands of a part of the page, in their order."""
    for block in re.findall(r"```sh\n(.*?)```", part, re.DOTALL):
        yield from re.findall(r"^\$ (.*)", block, re.MULTILINE)
