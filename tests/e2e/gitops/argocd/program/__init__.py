"""Argo CD itself, built once into the tests' cache: one program, whose part its environment decides.

`python -m tests.e2e.gitops.argocd.program` builds it and prints where it is.
"""

from pathlib import Path

from tests.support.go_module import GoModule

_MODULE = "github.com/argoproj/argo-cd/v3"


def program() -> Path:
    """The program. Builds it if it is missing: six minutes on two cores. CalledProcessError if that fails."""
    return _BUILT.folder / "argocd"


def custom_resources() -> tuple[Path, ...]:
    """The CustomResourceDefinitions of the same version: Application, ApplicationSet, AppProject."""
    return tuple(sorted((_BUILT.folder / "crds").glob("*-crd.yaml")))


def _fill(module: GoModule, folder: Path) -> None:
    module.build(folder / "argocd", f"{_MODULE}/cmd")
    (folder / "crds").mkdir()
    for definition in (module.sources(_MODULE) / "manifests" / "crds").glob("*-crd.yaml"):
        (folder / "crds" / definition.name).write_bytes(definition.read_bytes())


_BUILT = GoModule(name="argocd", here=Path(__file__).parent, fill=_fill)
