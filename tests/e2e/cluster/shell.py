"""A person at a terminal: commands of a page run as they are written, in one folder, with Helm, kubectl and git themselves."""

import os
import subprocess
import sys
from pathlib import Path

from tests.e2e.cluster.cluster import Cluster
from tests.e2e.cluster.machine import PATIENCE
from tests.support import helm


class Shell:
    """`folder` is where the commands run; programs are laid beside it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.folder.mkdir()
        home, programs = folder.parent, folder.parent / "bin"
        programs.mkdir()
        (programs / "helm").symlink_to(helm.helm())
        (programs / "kubectl").symlink_to(helm.kubectl())
        person = {
            f"GIT_{role}_{field}": value
            for role in ("AUTHOR", "COMMITTER")
            for field, value in (("NAME", "Somebody"), ("EMAIL", "somebody@example.org"))
        }
        self._environment = {
            **os.environ,
            **person,
            "HOME": str(home),
            "PATH": os.pathsep.join(map(str, (programs, Path(sys.executable).parent, os.environ["PATH"]))),
            "KUBECONFIG": str(cluster.control_plane.folder / "admin.kubeconfig"),
        }
        # The tests' own terminal may be narrow: tables would be cut.
        self._environment.pop("COLUMNS", None)

    def run(self, command: str) -> str:
        """What it prints."""
        line = self.cluster.network.command("sh", "-c", command)
        done = subprocess.run(
            list(map(str, line)),
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=5 * PATIENCE,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}{self._state()}"
        return done.stdout

    def _state(self) -> str:
        """Pods and Events of the release's namespace, for a command that failed."""
        shown = ("get", "pods,events", "--namespace", "gpu-system", "--output", "wide")
        return self.cluster.kubectl(*shown, check=False)
