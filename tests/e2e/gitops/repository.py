"""A Git repository as a folder, which Argo CD reads by its `file://` address, and Flux over HTTP."""

import os
import shutil
import subprocess
from pathlib import Path

IDENTITY = {
    "GIT_AUTHOR_NAME": "tests",
    "GIT_AUTHOR_EMAIL": "tests@example.org",
    "GIT_COMMITTER_NAME": "tests",
    "GIT_COMMITTER_EMAIL": "tests@example.org",
    "GIT_CONFIG_GLOBAL": "/dev/null",
}
"""Environment of git: who commits, and no settings of the machine's user."""


class Repository:
    """One branch, `main`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._git("init", "--quiet", "--initial-branch=main")

    @property
    def address(self) -> str:
        """Its URL."""
        return f"file://{self.folder}"

    def commit(self, bundle: Path, path: str) -> str:
        """Put the bundle's files at the path, in place of what is there; the commit."""
        target = self.folder / path
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(bundle, target)
        self._git("add", "--all")
        self._git("commit", "--quiet", "--message", "bundle")
        return self.head()

    def revert(self) -> str:
        """Undo the last commit by another one; that commit."""
        self._git("revert", "--no-edit", "HEAD")
        return self.head()

    def head(self) -> str:
        """The newest commit."""
        return self._git("rev-parse", "HEAD").strip()

    def _git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.folder), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **IDENTITY}).stdout
