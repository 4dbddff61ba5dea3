"""Helm 3.18, the first that installs a chart by digest, built once into the tests' cache: the wheels have an older Helm 3."""

from pathlib import Path

from tests.support.go_module import GoModule

_PROGRAM = "helm.sh/helm/v3/cmd/helm"


def program() -> Path:
    """The program. Builds it if it is missing: three minutes. CalledProcessError if that fails."""
    return _BUILT.folder / "helm"


_BUILT = GoModule(name="helm", here=Path(__file__).parent, fill=lambda module, folder: module.build(folder / "helm", _PROGRAM))
