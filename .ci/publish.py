"""`make publish REGISTRY=R KEY=K`: pushes the image and the chart of dist/ into a registry, and signs both.

A version is published once: what is there already must be the same, and is signed again. Signatures are made with a key and
ask no server of sigstore, so they can be verified without the internet. Credentials are those of `docker login`.
"""

import argparse
import getpass
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
ARCHITECTURES = ("amd64", "arm64")
FILTERED = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""How our own archives are unpacked: Python 3.11.2, which Debian 12 has, has no filters yet."""
TOOLS = ("cosign", "helm", "skopeo")

_INDEX = "application/vnd.oci.image.index.v1+json"
_NO_SERVERS = {
    "--signing-config": {"mediaType": "application/vnd.dev.sigstore.signingconfig.v0.2+json"},
    "--trusted-root": {"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"},
}
"""Options of cosign, and the files that they name: without a log of signatures, and without certificates."""


class PublishError(Exception):
    """What must be done first, or what failed. The text is for the person who publishes."""


def main() -> int:
    """Publish; return 0, or 1 with the reason."""
    parser = argparse.ArgumentParser(description="Publish the release in dist/ to a registry.")
    parser.add_argument("registry", help="where to, such as registry.example.org/gpushare")
    parser.add_argument("--key", required=True, help="cosign's private key: a file, or the address of a key server")
    parser.add_argument("--plain-http", action="store_true", help="the registry has no TLS")
    arguments = parser.parse_args()
    try:
        missing = [tool for tool in TOOLS if not shutil.which(tool)]
        if missing:
            raise PublishError(f"{', '.join(missing)} is missing: install it")
        if "://" in arguments.registry or "/" not in arguments.registry.strip("/"):
            raise PublishError(f"{arguments.registry!r} is not HOST/PATH, such as registry.example.org/gpushare")
        if Path(arguments.key).is_file() and "COSIGN_PASSWORD" not in os.environ and sys.stdin.isatty():
            # Otherwise cosign asks for it at every signature.
            os.environ["COSIGN_PASSWORD"] = getpass.getpass(f"Password of {arguments.key}: ")
        print(*publish(arguments.registry.strip("/"), arguments.key, plain_http=arguments.plain_http), sep="\n")
    except PublishError as problem:
        print(f"publish: {problem}", file=sys.stderr)
        return 1
    return 0


def publish(registry: str, key: str, *, plain_http: bool) -> Iterator[str]:
    """Push and sign, and yield what to tell users. PublishError at the first thing that fails."""
    version = released()
    with tempfile.TemporaryDirectory() as scratch:
        target = Registry(registry, key, Path(scratch), plain_http=plain_http)
        digests = layout(version, Path(scratch, "layout"))
        target.push_image(f"node-runtime:{version}", Path(scratch, "layout"), digests["index"])
        chart = target.push_chart("charts", version)
        image = f"node-runtime@{digests['index']}"
        for reference in (image, chart):
            target.sign(reference)
            target.attest(reference, "slsaprovenance1", DIST / "provenance.json")
        for one in ARCHITECTURES:
            bill = DIST / f"gpushare-node-{version}-{one}.sbom.cdx.json"
            target.attest(f"node-runtime@{digests[one]}", "cyclonedx", bill)
    yield f"published gpushare {version}:"
    yield f"  {registry}/{image}"
    yield f"  {registry}/{chart}"
    yield "Users verify it without the internet, then install by digest (Helm 4, or Helm 3 from 3.18 on):"
    yield f"  cosign verify --key cosign.pub --insecure-ignore-tlog {registry}/{chart}"
    yield f"  helm install gpushare oci://{registry}/{chart}"


def released() -> str:
    """Return the version in dist/, whose files must be whole."""
    sums = DIST / "SHA256SUMS"
    if not sums.is_file():
        raise PublishError("dist/ has no release: run `make release`")
    for line in sums.read_text().splitlines():
        digest, name = line.split()
        file = DIST / name
        if not file.is_file() or hashlib.sha256(file.read_bytes()).hexdigest() != digest:
            raise PublishError(f"dist/{name} is not what `make release` wrote: run it again")
    found = re.search(r" gpushare-([^\s]+)\.tgz$", sums.read_text(), re.MULTILINE)
    if not found or f"gpushare-node-{found[1]}-{ARCHITECTURES[0]}.oci.tar" not in sums.read_text():
        raise PublishError("dist/ has no image: run `make release` without --without-image")
    return found[1]


def layout(version: str, folder: Path) -> dict[str, str]:
    """Write the OCI layout of one image for all architectures; return the digests by architecture, and of the index."""
    manifests = []
    for one in ARCHITECTURES:
        with tarfile.open(DIST / f"gpushare-node-{version}-{one}.oci.tar") as archive:
            archive.extractall(folder, **FILTERED)
        [manifest] = json.loads((folder / "index.json").read_text())["manifests"]
        manifests.append(
            {key: manifest[key] for key in ("mediaType", "digest", "size")} | {"platform": {"architecture": one, "os": "linux"}}
        )
    index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": manifests}).encode()
    digest = hashlib.sha256(index).hexdigest()
    (folder / "blobs/sha256" / digest).write_bytes(index)
    whole = {"mediaType": _INDEX, "digest": f"sha256:{digest}", "size": len(index)}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [whole]}))
    found = {one: str(manifest["digest"]) for one, manifest in zip(ARCHITECTURES, manifests, strict=True)}
    return found | {"index": f"sha256:{digest}"}


class Registry:
    """A place in a registry, and how it is written to. `folder` is for the files that the programs read."""

    def __init__(self, name: str, key: str, folder: Path, *, plain_http: bool) -> None:
        self._name, self._key, self._plain_http = name, key, plain_http
        self._options: list[str] = []
        for option, content in _NO_SERVERS.items():
            file = folder / f"{option.strip('-')}.json"
            file.write_text(json.dumps(content))
            self._options += [option, str(file)]

    def push_image(self, reference: str, source: Path, digest: str) -> None:
        """Push an image with all its architectures, unless it is there."""
        there = self._manifest(reference)
        if there is not None and f"sha256:{hashlib.sha256(there).hexdigest()}" != digest:
            raise PublishError(f"{self._name}/{reference} is another image: a version is published once")
        if there is None:
            tls = ["--dest-tls-verify=false"] if self._plain_http else []
            _run("skopeo", "copy", "--all", "--preserve-digests", *tls, f"oci:{source}", f"docker://{self._name}/{reference}")

    def push_chart(self, below: str, version: str) -> str:
        """Push the chart, unless it is there; return its reference by digest."""
        package, reference = DIST / f"gpushare-{version}.tgz", f"{below}/gpushare:{version}"
        if self._manifest(reference) is None:
            http = ["--plain-http"] if self._plain_http else []
            _run("helm", "push", package, f"oci://{self._name}/{below}", *http)
        there = self._manifest(reference)
        if there is None:
            raise PublishError(f"{self._name}/{reference} was pushed and cannot be read: may this login pull?")
        layers: list[Mapping[str, Any]] = json.loads(there)["layers"]
        if f"sha256:{hashlib.sha256(package.read_bytes()).hexdigest()}" not in [layer["digest"] for layer in layers]:
            raise PublishError(f"{self._name}/{reference} is another chart: a version is published once")
        return f"{below}/gpushare@sha256:{hashlib.sha256(there).hexdigest()}"

    def sign(self, reference: str) -> None:
        """Sign a reference by digest, and every image that it lists."""
        self._cosign("sign", "--recursive", reference)

    def attest(self, reference: str, kind: str, predicate: Path) -> None:
        """Sign a statement on a reference by digest."""
        self._cosign("attest", "--type", kind, "--predicate", str(predicate), reference)

    def _cosign(self, *arguments: str) -> None:
        *options, reference = arguments
        http = ["--allow-http-registry"] if self._plain_http else []
        _run("cosign", *options, "--yes", "--key", self._key, *self._options, *http, f"{self._name}/{reference}")

    def _manifest(self, reference: str) -> bytes | None:
        """Return what the registry has under the reference, None if nothing; PublishError if it does not say."""
        tls = ["--tls-verify=false"] if self._plain_http else []
        command = ["skopeo", "inspect", "--raw", *tls, f"docker://{self._name}/{reference}"]
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode == 0:
            return done.stdout
        told = done.stderr.decode(errors="replace")
        if "manifest unknown" in told or "name unknown" in told:
            return None
        raise PublishError(f"{self._name} cannot be asked: {told.strip()}")


def _run(*command: str | Path) -> None:
    """Run a program, whose words go to stderr; PublishError if it fails."""
    print(f"publish: {' '.join(map(str, command[:2]))} {command[-1]}", file=sys.stderr, flush=True)
    done = subprocess.run([str(part) for part in command], stdout=sys.stderr, check=False)
    if done.returncode:
        raise PublishError(f"{command[0]} {command[1]} failed, as it says above")


if __name__ == "__main__":
    sys.exit(main())
