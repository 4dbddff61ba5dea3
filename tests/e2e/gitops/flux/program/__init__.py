"""Flux's source-controller and kustomize-controller, built once into the tests' cache, and the definitions of its objects.

The Go module proxy does not serve helm-controller, but the types of its API, from which its definition is generated as
upstream does. `python -m tests.e2e.gitops.flux.program` builds all of it and prints where it is.
"""

from pathlib import Path

from tests.support.go_module import GoModule

_CONTROLLERS = ("source-controller", "kustomize-controller")


def program(name: str) -> Path:
    """One of the controllers by name. Builds both if they are missing. CalledProcessError if that fails."""
    return _BUILT.folder / name


def custom_resources() -> tuple[Path, ...]:
    """The CustomResourceDefinitions of the same versions, with that of HelmRelease."""
    return tuple(sorted((_BUILT.folder / "crds").glob("*.yaml")))


def _fill(module: GoModule, folder: Path) -> None:
    modules = [f"github.com/fluxcd/{name}" for name in _CONTROLLERS]
    module.build(folder, *modules, "sigs.k8s.io/controller-tools/cmd/controller-gen")
    crds = folder / "crds"
    crds.mkdir()
    for name in modules:
        for definition in (module.sources(name) / "config" / "crd" / "bases").glob("*.yaml"):
            (crds / definition.name).write_bytes(definition.read_bytes())
    generator = folder / "controller-gen"
    module.run(str(generator), "crd", "paths=github.com/fluxcd/helm-controller/api/v2", f"output:crd:dir={crds}")
    generator.unlink()


_BUILT = GoModule(name="flux", here=Path(__file__).parent, fill=_fill)
