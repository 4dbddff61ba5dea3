"""Builds the node runtime's image with buildah, as OCI layouts next to their bills of materials: `build.py [--help]`.

The image is identical, byte for byte, if bases and sources are the same: nothing in it has a date, and wheels are pinned.
"""

import argparse
import fcntl
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import base
import sbom

CONTEXT = Path(__file__).resolve().parents[1]
NAME = "localhost/gpushare-node"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")


@dataclass(frozen=True, kw_only=True)
class Image:
    """One built image. `size_bytes` is the size of a pull: the compressed layers."""

    architecture: str
    reference: str
    digest: str
    size_bytes: int


def main() -> None:
    """Build the images that the arguments select, and print one line for each."""
    arguments = _parse()
    arguments.output.mkdir(parents=True, exist_ok=True)
    for architecture in arguments.architecture:
        with _only_build():
            image = build(architecture, arguments.base, arguments.build_base, arguments.output)
        megabytes = image.size_bytes / 1e6
        print(f"{image.reference} {image.architecture} {image.digest} {megabytes:.1f} MB")


@contextmanager
def _only_build() -> Iterator[None]:
    """Wait for the user's other builds: all have the same names in buildah's storage, and one would remove another's base."""
    path = Path(tempfile.gettempdir()) / f"gpushare-image-{os.getuid()}.lock"
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def build(architecture: str, runtime_base: str | None, build_base: str | None, output: Path) -> Image:
    """Build one image. Base `debian` is bootstrapped from Debian's archive; None is the Dockerfile's own, from its registry."""
    # Buildah before 1.29 does not set BUILDPLATFORM itself.
    reference = f"{NAME}:{_version()}-{architecture}"
    _forget(reference)
    arguments = [
        f"--build-arg=VERSION={_version()}",
        f"--build-arg=REVISION={_revision()}",
        f"--build-arg=BUILDPLATFORM=linux/{_own_architecture()}",
    ]
    if runtime_base == "debian":
        runtime_base = _bootstrap(architecture)
        build_base = build_base or _bootstrap(_own_architecture(), base.BUILD)
    if runtime_base:
        arguments.append(f"--build-arg=RUNTIME_BASE={runtime_base}")
    if build_base:
        arguments.append(f"--build-arg=BUILD_BASE={build_base}")
    if os.environ.get("PIP_INDEX_URL"):
        arguments.append("--build-arg=PIP_INDEX_URL")
    if BUNDLE.exists():  # The host's trusted certificates, which may include that of a company's proxy.
        arguments.append(f"--volume={BUNDLE}:{BUNDLE}:ro")
    _run(
        "buildah",
        "build",
        "--quiet",
        "--force-rm",
        "--isolation=chroot",
        "--no-cache",
        "--timestamp=0",
        "--format=oci",
        f"--platform=linux/{architecture}",
        f"--tag={reference}",
        *arguments,
        str(CONTEXT),
    )
    return _export(architecture, reference, output)


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the node runtime's image as OCI layouts, with buildah.")
    parser.add_argument("--base", metavar="REFERENCE", help="the final base; `debian`: bootstrap one with mmdebstrap")
    parser.add_argument("--build-base", metavar="REFERENCE", help="an image with pip and the final base's Python")
    parser.add_argument("--architecture", action="append", choices=sorted(ARCHITECTURES.values()), help="all, if left out")
    parser.add_argument("--output", type=Path, default=Path("build/image"), metavar="FOLDER")
    arguments = parser.parse_args()
    arguments.architecture = arguments.architecture or sorted(ARCHITECTURES.values())
    return arguments


def _own_architecture() -> str:
    return ARCHITECTURES[platform.machine()]


def _bootstrap(architecture: str, packages: Sequence[str] = ()) -> str:
    """Build a local image of Debian's packages; return its reference."""
    reference = f"localhost/gpushare-{'build' if packages else 'runtime'}-base:{architecture}"
    _forget(reference)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "base.tar"
        base.bootstrap(architecture, archive, tuple(packages))
        container = _run("buildah", "from", f"--arch={architecture}", "scratch")
        try:
            _run("buildah", "add", "--quiet", container, str(archive), "/")
            _run("buildah", "commit", "--quiet", "--timestamp=0", "--format=oci", container, reference)
        finally:
            _run("buildah", "rm", container)
    return reference


def _export(architecture: str, reference: str, output: Path) -> Image:
    """Write the image as an OCI layout, and its bill of materials next to it."""
    layout = output / f"gpushare-node-{architecture}"
    shutil.rmtree(layout, ignore_errors=True)
    _run("buildah", "push", "--quiet", "--compression-format=gzip", reference, f"oci:{layout}")
    [described] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads((layout / "blobs" / described["digest"].replace(":", "/")).read_text())
    container = _run("buildah", "from", f"--arch={architecture}", reference)
    try:
        inside = Path(_run("buildah", "mount", container)) / "opt/gpushare" / sbom.NAME
        shutil.copyfile(inside, output / f"gpushare-node-{architecture}.{sbom.NAME}")
    finally:
        _run("buildah", "rm", container)
    size_bytes = sum(layer["size"] for layer in manifest["layers"])
    return Image(architecture=architecture, reference=reference, digest=described["digest"], size_bytes=size_bytes)


def _forget(reference: str) -> None:
    """Remove the image that an earlier build left under this name. An image that is in use, or missing, is not an error."""
    subprocess.run(["buildah", "rmi", reference], capture_output=True, check=False)


def _version() -> str:
    found = re.search(r'__version__ = "(.+)"', (CONTEXT / "gpushare_node/__init__.py").read_text())
    assert found is not None
    return found[1]


def _revision() -> str:
    """Return the commit, empty if there is none; the environment's `REVISION` takes precedence."""
    told = os.environ.get("REVISION")
    command = ["git", "-C", str(CONTEXT), "rev-parse", "HEAD"]
    return told or subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _run(*command: str) -> str:
    """Run the program; return its standard output. Its standard error is shown at once."""
    return subprocess.run(command, stdout=subprocess.PIPE, stderr=sys.stderr, text=True, check=True).stdout.strip()


if __name__ == "__main__":
    main()
