"""A real registry (Debian's docker-registry) in a process of its own, with or without TLS and logins."""

import hashlib
import json
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.ports import free_port, is_served
from tests.support.waiting import wait_for

# The password is `secret`, as bcrypt with few rounds.
HTPASSWD = "puller:$2b$04$sTn1hdMUh7uc/64vUla7j.oGt8saIgke4oQVLpxX8TmHnSu6IlAHy\n"
INDEX = "application/vnd.oci.image.index.v1+json"


@contextmanager
def registry(folder: Path, *, login: bool = False, certificate: tuple[Path, Path] | None = None) -> Iterator[str]:
    """The host and port of a registry with its data in `folder`."""
    port = free_port()
    config: dict[str, Any] = {
        "version": 0.1,
        "log": {"level": "error", "accesslog": {"disabled": True}},
        "storage": {"filesystem": {"rootdirectory": str(folder / "data")}},
        "http": {"addr": f"127.0.0.1:{port}", "secret": "tests"},
    }
    if login:
        (folder / "htpasswd").write_text(HTPASSWD)
        config["auth"] = {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}}
    if certificate:
        config["http"]["tls"] = {"certificate": str(certificate[0]), "key": str(certificate[1])}
    (folder / "config.yml").write_text(json.dumps(config))
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(["docker-registry", "serve", str(folder / "config.yml")], stdout=log, stderr=log)

    def answers() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        return is_served(port)

    try:
        wait_for(answers, "the registry")
        yield f"127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def push(host: str, name: str, tag: str) -> str:
    """Push an empty image index; its digest."""
    manifest = json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": []}).encode()
    request = urllib.request.Request(
        f"http://{host}/v2/{name}/manifests/{tag}", data=manifest, method="PUT", headers={"Content-Type": INDEX}
    )
    with urllib.request.urlopen(request) as answer:
        assert answer.status == 201
    return "sha256:" + hashlib.sha256(manifest).hexdigest()
