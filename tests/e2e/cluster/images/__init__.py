"""Container images for the test cluster, made without a registry: OCI layouts of a few files, as tar archives for `ctr`."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.image import building
from tests.support import c_compiler
from tests.support.fake_nvml import build

PAUSE = "gpushare.dev/tests/pause:1"
TENANT = "gpushare.dev/tests/tenant:1"
RUNTIME = "gpushare.dev/tests/runtime:1"

_INDEX = "application/vnd.oci.image.index.v1+json"
_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
_CONFIG = "application/vnd.oci.image.config.v1+json"
_LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"


def pause(folder: Path) -> Path:
    """The archive of the sandbox image: one static program."""
    built = folder / "pause"
    source = Path(__file__).parent / "pause.c"
    subprocess.run([*c_compiler.command(), "-static", "-Os", "-o", str(built), str(source)], check=True)
    return archive(PAUSE, {"pause": built}, ["/pause"], folder / "pause.tar")


def tenant(folder: Path) -> Path:
    """The archive of the tenant: one static program that takes GPU memory in the fake GPUs."""
    return archive(TENANT, {"tenant": build.tenant()}, ["/tenant"], folder / "tenant.tar")


def runtime(folder: Path) -> Path:
    """The archive of the node runtime's image, as `make image` builds it, under a name that no registry has."""
    return pack(building.built(), folder / "runtime.tar")


def pack(image: building.Built, target: Path) -> Path:
    """An image that is a folder, as an archive that `ctr` imports under the name RUNTIME."""
    entry = image.described | {"annotations": {"io.containerd.image.name": RUNTIME}}
    index = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}).encode()
    with tarfile.open(target, "w") as tar:
        for name, content in (("index.json", index), ("oci-layout", (image.layout / "oci-layout").read_bytes())):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
        tar.add(image.layout / "blobs", "blobs")
    return target


def archive(name: str, files: Mapping[str, Path], entrypoint: Sequence[str], target: Path) -> Path:
    """An image of these programs and nothing else. The same files make the same bytes."""
    layer = io.BytesIO()
    with tarfile.open(fileobj=layer, mode="w") as tar:
        for path, source in sorted(files.items()):
            member = tarfile.TarInfo(path)
            member.size, member.mode = source.stat().st_size, 0o755
            tar.addfile(member, io.BytesIO(source.read_bytes()))
    raw = layer.getvalue()
    blobs: dict[str, bytes] = {}

    def keep(content: bytes, kind: str) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": list(entrypoint)},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(raw).hexdigest()}"]},
    }
    layers = [keep(gzip.compress(raw, mtime=0), _LAYER)]
    kept = keep(json.dumps(config).encode(), _CONFIG)
    manifest = {"schemaVersion": 2, "mediaType": _MANIFEST, "config": kept, "layers": layers}
    entry = keep(json.dumps(manifest).encode(), _MANIFEST) | {"annotations": {"io.containerd.image.name": name}}
    blobs["index.json"] = json.dumps({"schemaVersion": 2, "mediaType": _INDEX, "manifests": [entry]}).encode()
    blobs["oci-layout"] = b'{"imageLayoutVersion": "1.0.0"}'
    with tarfile.open(target, "w") as tar:
        for path, content in sorted(blobs.items()):
            member = tarfile.TarInfo(path)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return target
