"""cosign itself, built once into the tests' cache."""

from pathlib import Path

from tests.support.go_module import GoModule


def program() -> Path:
    """The program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder / "cosign"


_BUILT = GoModule(
    name="cosign",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder, "github.com/sigstore/cosign/v3/cmd/cosign"),
)
