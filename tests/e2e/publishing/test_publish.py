"""`make publish`: into a real registry, signed by cosign itself, and verified and installed as users do."""

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare import __version__
from tests.e2e.publishing import cosign, helm_3_18
from tests.e2e.registry.registries import registry
from tests.support import helm
from tests.support.paths import ROOT

PASSWORD = {"COSIGN_PASSWORD": "of the tests"}
NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "HTTP_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
"""Only the registry can be reached."""


class Publisher:
    """A tree with a release in dist/, a registry, and a pair of keys."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.name = folder, f"{host}/gpushare"
        self.dist, programs = folder / "dist", folder / "bin"
        (folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/publish.py", folder / ".ci")
        programs.mkdir()
        for name, program in (("cosign", cosign.program()), ("helm", helm.helm()), ("helm-3.18", helm_3_18.program())):
            (programs / name).symlink_to(program)
        self.environment = {
            **os.environ,
            **PASSWORD,
            **NO_NETWORK,
            "HOME": str(folder),
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        }
        self.tool("cosign", "generate-key-pair")
        self.release()

    def release(self, words: str = "a release") -> None:
        """Put files into dist/ with the names of those of `make release`; images that hold the words."""
        shutil.rmtree(self.dist, ignore_errors=True)
        self.dist.mkdir()
        for one in ("amd64", "arm64"):
            oci_archive(self.dist / f"gpushare-node-{__version__}-{one}.oci.tar", one, words)
            (self.dist / f"gpushare-node-{__version__}-{one}.sbom.cdx.json").write_text('{"bomFormat": "CycloneDX"}')
        (self.dist / "provenance.json").write_text('{"buildDefinition": {"buildType": "https://example.org"}}')
        self.tool("helm", "package", ROOT / "charts/gpushare", "--destination", self.dist)
        self.sum()

    def sum(self) -> None:
        """Write the checksums of dist/ as it is."""
        files = [file for file in sorted(self.dist.iterdir()) if file.name != "SHA256SUMS"]
        lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
        (self.dist / "SHA256SUMS").write_text("".join(lines))

    def publish(self) -> "subprocess.CompletedProcess[str]":
        """Run the command."""
        return self.tool(sys.executable, ".ci/publish.py", self.name, "--key", "cosign.key", "--plain-http", check=False)

    def published(self) -> tuple[str, str]:
        """Publish; the references of the image and of the chart, by digest."""
        done = self.publish()
        assert done.returncode == 0, done.stderr
        image, chart = (line.strip() for line in done.stdout.splitlines() if line.startswith(f"  {self.name}/"))
        return image, chart

    def verifies(self, *arguments: str, key: str = "cosign.pub") -> bool:
        """Whether cosign verifies a reference, without a log."""
        *how, reference = arguments
        command = ("cosign", *how, "--key", key, "--insecure-ignore-tlog", reference)
        return self.tool(*command, check=False).returncode == 0

    def tool(self, *command: str | Path, check: bool = True) -> "subprocess.CompletedProcess[str]":
        """Run a program in the tree."""
        words = [str(word) for word in command]
        return subprocess.run(words, cwd=self.folder, env=self.environment, capture_output=True, text=True, check=check)


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    (tmp_path / "registry").mkdir()
    (tmp_path / "tree").mkdir()
    with registry(tmp_path / "registry") as host:
        yield Publisher(tmp_path / "tree", host)


def oci_archive(path: Path, architecture: str, words: str) -> None:
    """Write an image of one file as an OCI archive."""
    blobs: dict[str, bytes] = {}

    def blob(content: bytes, kind: str) -> dict[str, Any]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    def packed(name: str, content: bytes) -> bytes:
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w") as layer:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            layer.addfile(member, io.BytesIO(content))
        return stream.getvalue()

    content = packed("words", words.encode())
    layer = blob(content, "layer.v1.tar")
    config = {"architecture": architecture, "os": "linux", "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]}}
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), "config.v1+json"),
        "layers": [layer],
    }
    index = {"schemaVersion": 2, "manifests": [blob(json.dumps(manifest).encode(), "manifest.v1+json")]}
    with tarfile.open(path, "w") as archive:
        files = blobs | {"index.json": json.dumps(index).encode(), "oci-layout": b'{"imageLayoutVersion": "1.0.0"}'}
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def test_published_artifacts_are_verified_offline_and_installed_by_digest(publisher: Publisher) -> None:
    image, chart = publisher.published()
    raw = publisher.tool(
        "skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{publisher.name}/node-runtime:{__version__}"
    )
    manifests = json.loads(raw.stdout)["manifests"]
    assert [one["platform"]["architecture"] for one in manifests] == ["amd64", "arm64"]
    each = [f"{publisher.name}/node-runtime@{one['digest']}" for one in manifests]
    for reference in (image, chart, *each):
        assert publisher.verifies("verify", reference), reference
    for reference in (image, chart):
        assert publisher.verifies("verify-attestation", "--type", "slsaprovenance1", reference)
    for reference in each:
        assert publisher.verifies("verify-attestation", "--type", "cyclonedx", reference)
    for program in ("helm", "helm-3.18"):
        # Helm that is built without its release's options takes every cluster for an old one.
        rendering = (program, "template", "gpushare", "--namespace", "gpu-system", "--kube-version", "1.33")
        by_digest = publisher.tool(*rendering, f"oci://{chart}", "--plain-http")
        folder = publisher.tool(*rendering, ROOT / "charts/gpushare")
        # Helm says before what it has pulled.
        assert by_digest.stdout.partition("---\n")[2] == folder.stdout.partition("---\n")[2] != ""


def test_signature_does_not_verify_with_another_key(publisher: Publisher) -> None:
    image, chart = publisher.published()
    publisher.tool("cosign", "generate-key-pair", "--output-key-prefix", "other")
    for reference in (image, chart):
        assert publisher.verifies("verify", reference)
        assert not publisher.verifies("verify", reference, key="other.pub")
        assert not publisher.verifies("verify-attestation", "--type", "slsaprovenance1", reference, key="other.pub")


def test_signature_moved_to_another_image_does_not_verify(publisher: Publisher) -> None:
    image, _ = publisher.published()
    oci_archive(publisher.folder / "forged.tar", "amd64", "something else")
    repository = f"{publisher.name}/node-runtime"
    insecure = ("--src-tls-verify=false", "--dest-tls-verify=false")
    publisher.tool("skopeo", "copy", *insecure, "oci-archive:forged.tar", f"docker://{repository}:forged")
    raw = publisher.tool("skopeo", "inspect", "--raw", "--tls-verify=false", f"docker://{repository}:forged").stdout
    signed, forged = image.rpartition("sha256:")[2], hashlib.sha256(raw.encode()).hexdigest()
    tags = json.loads(publisher.tool("skopeo", "list-tags", "--tls-verify=false", f"docker://{repository}").stdout)["Tags"]
    # A registry without an API for referrers has what refers to an image under a tag of its digest.
    found = [tag for tag in tags if signed in tag]
    assert found
    for tag in found:
        target = tag.replace(signed, forged)
        publisher.tool("skopeo", "copy", "--all", *insecure, f"docker://{repository}:{tag}", f"docker://{repository}:{target}")
    assert publisher.verifies("verify", image)
    assert not publisher.verifies("verify", f"{repository}@sha256:{forged}")


def test_a_version_is_published_once_and_its_publication_can_be_repeated(publisher: Publisher) -> None:
    first = publisher.published()
    assert publisher.published() == first
    publisher.release("another release")
    again = publisher.publish()
    assert again.returncode == 1
    assert "is another image: a version is published once" in again.stderr


def test_artifacts_changed_since_the_release_are_not_published(publisher: Publisher) -> None:
    changed = publisher.dist / f"gpushare-node-{__version__}-arm64.oci.tar"
    changed.write_bytes(changed.read_bytes() + b"more")
    done = publisher.publish()
    assert (done.returncode, f"dist/{changed.name} is not what `make release` wrote" in done.stderr) == (1, True)
    changed.unlink()
    (publisher.dist / f"gpushare-node-{__version__}-amd64.oci.tar").unlink()
    publisher.sum()
    assert "dist/ has no image" in publisher.publish().stderr
    shutil.rmtree(publisher.dist)
    assert "dist/ has no release: run `make release`" in publisher.publish().stderr


def test_unreachable_registry_and_wrong_password_are_reported(publisher: Publisher) -> None:
    there, publisher.name = publisher.name, "127.0.0.1:9/gpushare"
    done = publisher.publish()
    assert (done.returncode, "127.0.0.1:9/gpushare cannot be asked" in done.stderr) == (1, True)
    publisher.name = "oci://127.0.0.1:9/gpushare"
    assert "is not HOST/PATH" in publisher.publish().stderr
    publisher.name = there
    publisher.environment["COSIGN_PASSWORD"] = "wrong"
    done = publisher.publish()
    assert (done.returncode, "publish: cosign sign failed" in done.stderr) == (1, True)
