"""crane itself, built once into the tests' cache."""

from pathlib import Path

from tests.support.go_module import GoModule


def folder() -> Path:
    """The folder with the program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder


_BUILT = GoModule(
    name="crane",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder, "github.com/google/go-containerregistry/cmd/crane"),
)
