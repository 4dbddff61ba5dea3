"""crane and oras themselves, built once into the tests' cache: half a minute."""

from pathlib import Path

from tests.support.go_module import GoModule

_PACKAGES = ("github.com/google/go-containerregistry/cmd/crane", "oras.land/oras/cmd/oras")


def folder() -> Path:
    """The folder with both programs. Builds them if they are missing. CalledProcessError if that fails."""
    return _BUILT.folder


_BUILT = GoModule(name="copiers", here=Path(__file__).parent, fill=lambda module, folder: module.build(folder, *_PACKAGES))
