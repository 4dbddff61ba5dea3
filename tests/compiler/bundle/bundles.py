"""Small bundles for the tests of writing: some files and the lock that lists them."""

import os
import stat
from pathlib import Path

from gpushare.bundle import lock
from gpushare.bundle.artifact import Artifact, digest
from gpushare.bundle.lock import Lock

OLD = {"README.md": "old\n", "chart/values.yaml": "a: 1\n", "chart/files/policies/gone.yaml": "gone\n", "same.txt": "same\n"}
NEW = {"README.md": "new\n", "chart/values.yaml": "a: 2\n", "chart/files/policies/come.yaml": "come\n", "same.txt": "same\n"}
FOREIGN = {"kustomization.yaml": "resources: []\n", "chart/notes.txt": "mine\n", "own/deep/er.txt": "mine too\n"}


def memory(files: dict[str, str]) -> Lock:
    """The lock of a bundle with these files."""
    return Lock(intent=digest(repr(files)), files={path: digest(text) for path, text in files.items()})


def bundle(files: dict[str, str]) -> tuple[Artifact, ...]:
    """The artifacts of a bundle with these files, its lock last."""
    listed = [Artifact(path=path, text=text) for path, text in files.items()]
    return (*listed, Artifact(path=lock.FILE, text=lock.text(memory(files))))


def texts(files: dict[str, str]) -> dict[str, str]:
    """What a folder with just this bundle holds."""
    return {artifact.path: artifact.text for artifact in bundle(files)}


def lay(folder: Path, files: dict[str, str]) -> None:
    """Write files below a folder, without the code under test."""
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)


def found(folder: Path) -> dict[str, str]:
    """Every file below a folder with its text; links with their target."""
    seen = {}
    for root, _, names in os.walk(folder):
        for name in names:
            path = Path(root) / name
            text = f"-> {path.readlink()}" if stat.S_ISLNK(path.lstat().st_mode) else path.read_text()
            seen[path.relative_to(folder).as_posix()] = text
    return seen
