"""Argo CD itself, built from the Go module proxy once into the tests' cache: one program, whose part its environment decides.

`python -m tests.e2e.gitops.argocd.program` builds it and prints where it is. Needs Go 1.26.
"""

import functools
import hashlib
import os
import subprocess
from pathlib import Path

from tests.support import cache

_HERE = Path(__file__).parent
_MODULE = "github.com/argoproj/argo-cd/v3"
_ENVIRONMENT = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOFLAGS": "-mod=readonly"}
_COMMAND = ("go", "build", "-trimpath", "-ldflags", "-s -w")


@functools.cache
def program() -> Path:
    """The program. Builds it if it is missing: six minutes on two cores. CalledProcessError if that fails."""
    return _folder() / "argocd"


def custom_resources() -> tuple[Path, ...]:
    """The CustomResourceDefinitions of the same version: Application, ApplicationSet, AppProject."""
    return tuple(sorted((_folder() / "crds").glob("*-crd.yaml")))


@functools.cache
def _folder() -> Path:
    go = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=True).stdout.strip()
    files = [(_HERE / name).read_bytes() for name in ("go.mod", "go.sum", "tools.go")]
    digest = hashlib.sha256(b"\0".join([*files, go.encode(), repr((_COMMAND, _ENVIRONMENT)).encode()])).hexdigest()[:12]
    return cache.folder(f"argocd-{digest}", _build)


def _build(folder: Path) -> None:
    environment = {**os.environ, **_ENVIRONMENT}
    subprocess.run([*_COMMAND, "-o", folder / "argocd", f"{_MODULE}/cmd"], cwd=_HERE, env=environment, check=True)
    where = subprocess.run(["go", "list", "-m", "-f", "{{.Dir}}", _MODULE], cwd=_HERE, env=environment,
                           capture_output=True, text=True, check=True).stdout.strip()
    (folder / "crds").mkdir()
    for definition in (Path(where) / "manifests" / "crds").glob("*-crd.yaml"):
        (folder / "crds" / definition.name).write_bytes(definition.read_bytes())
