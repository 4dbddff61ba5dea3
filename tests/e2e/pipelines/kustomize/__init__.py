"""kustomize itself, built once into the tests' cache: a quarter of a minute."""

from pathlib import Path

from tests.support.go_module import GoModule

_PROGRAM = "sigs.k8s.io/kustomize/kustomize/v5"


def program() -> Path:
    """The program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder / "kustomize"


_BUILT = GoModule(
    name="kustomize",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder / "kustomize", _PROGRAM),
)
