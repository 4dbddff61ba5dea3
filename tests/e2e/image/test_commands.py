"""The command with which GS725 and a bundle's README build and push the image, with bases of a registry of the test."""

import json
import subprocess
import sys
from pathlib import Path

from gpushare.facts.catalog.image_registry import build_commands
from gpushare.intent.types import Platform, RuntimeImage
from tests.e2e.image.building import CONTEXT, OWN, built
from tests.e2e.registry.registries import registry
from tests.support.paths import ROOT

BUILD_BASE = "import base, build; print(build._bootstrap(build._own_architecture(), base.BUILD))"
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def test_the_printed_command_of_podman_builds_and_pushes_the_image(tmp_path: Path) -> None:
    local = run(sys.executable, "-c", BUILD_BASE, cwd=CONTEXT / "image").strip()
    with registry(tmp_path) as host:
        # The built image is its base with a few files more, and has the same Python.
        bases = {"RUNTIME_BASE": f"oci:{built().layout}", "BUILD_BASE": f"containers-storage:{local}"}
        for name, source in bases.items():
            run("skopeo", "copy", "--quiet", "--dest-tls-verify=false", source, f"docker://{host}/{name.lower()}:1")
        repository = f"{host}/gpushare/node-runtime"
        _, command = build_commands(Platform(image=RuntimeImage(repository=repository, tag="1")))
        arguments = " ".join(f"--build-arg {name}={host}/{name.lower()}:1" for name in bases)
        # What a machine without rights of its own in a container needs, and a registry without TLS.
        here = f"--tls-verify=false --isolation=chroot --volume={CERTIFICATES}:{CERTIFICATES}:ro {arguments}"
        command = command.replace("podman build", f"podman build {here}").replace(
            "podman push", "podman push --tls-verify=false"
        )
        run("bash", "-ec", command.replace("linux/amd64", f"linux/{OWN}"))
        config = json.loads(run("skopeo", "inspect", "--config", "--tls-verify=false", f"docker://{repository}:1"))
        run("podman", "rmi", f"{repository}:1")
    assert config["architecture"] == OWN
    assert config["config"]["Entrypoint"] == ["/usr/local/bin/gpushare-node"]
