"""The runtime's image, built once for what it is made from, on a base bootstrapped from Debian: no registry is asked.

The layouts lie in the tests' cache outside the repository, under the digest of their inputs, and appear there whole.
"""

import functools
import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import cache, tar
from tests.support.paths import ROOT

CONTEXT = ROOT / "node-runtime"
_KEPT_SECONDS = 24 * 3600
"""Images of states of the sources are some 70 MB each. What may be in use by another run stays."""

ARCHITECTURES = ("amd64", "arm64")
OWN = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]


@dataclass(frozen=True, kw_only=True)
class Built:
    """An image as an OCI layout in a folder."""

    folder: Path
    architecture: str

    @property
    def layout(self) -> Path:
        return self.folder / f"gpushare-node-{self.architecture}"

    @property
    def described(self) -> dict[str, Any]:
        [manifest] = json.loads((self.layout / "index.json").read_text())["manifests"]
        return dict(manifest)

    @property
    def digest(self) -> str:
        return str(self.described["digest"])

    @property
    def manifest(self) -> dict[str, Any]:
        return dict(json.loads(self.blob(self.digest).read_text()))

    @property
    def config(self) -> dict[str, Any]:
        return dict(json.loads(self.blob(self.manifest["config"]["digest"]).read_text()))

    @property
    def size_bytes(self) -> int:
        return sum(layer["size"] for layer in self.manifest["layers"])

    def blob(self, digest: str) -> Path:
        return self.layout / "blobs" / digest.replace(":", "/")

    def files(self) -> dict[str, tarfile.TarInfo]:
        """Everything in the image, by path; later layers win, and the bases have nothing taken away."""
        found: dict[str, tarfile.TarInfo] = {}
        for layer in self.manifest["layers"]:
            with tarfile.open(self.blob(layer["digest"])) as archive:
                found |= {member.name.removeprefix("./"): member for member in archive}
        return found

    def unpack(self, target: Path) -> Path:
        """The root file system."""
        for layer in self.manifest["layers"]:
            tar.unpack(self.blob(layer["digest"]), target, how="fully_trusted")
        return target

    def bill(self) -> dict[str, Any]:
        return dict(json.loads((self.folder / f"gpushare-node-{self.architecture}.sbom.cdx.json").read_text()))


def build(source: Path, folder: Path, *architectures: str) -> Path:
    """Build a copy of the sources into the folder."""
    asked = [f"--architecture={one}" for one in architectures]
    command = [sys.executable, str(source / "image" / "build.py"), "--base=debian", f"--output={folder}", *asked]
    subprocess.run(command, check=True, stdout=sys.stderr, env={**os.environ, "REVISION": "test"})
    return folder


def built(architecture: str = OWN) -> Built:
    """The image; built, for all architectures, when it is not there yet."""
    return Built(folder=_folder(), architecture=architecture)


@functools.cache
def _folder() -> Path:
    """Asked once a process: sources may change while tests run."""
    with tempfile.TemporaryDirectory() as scratch:
        source = copy_sources(Path(scratch) / "source")
        folder = cache.folder(f"image-{_digest(source)[:16]}", lambda made: build(source, made, *ARCHITECTURES))
    for one in cache.root().glob("image-*/"):
        if one != folder and one.stat().st_mtime < time.time() - _KEPT_SECONDS:
            # Another run may be sweeping too.
            shutil.rmtree(one, ignore_errors=True)
    return folder


def copy_sources(target: Path) -> Path:
    """All that the image is made from, in a folder that nobody else writes to."""
    target.mkdir(parents=True)
    for part in ("image", "gpushare_node"):
        shutil.copytree(CONTEXT / part, target / part, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(CONTEXT / "Dockerfile", target)
    return target


def _digest(source: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for path in source.rglob("*") if path.is_file()):
        digest.update(f"{path.relative_to(source)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


if __name__ == "__main__":
    print(built().folder)
