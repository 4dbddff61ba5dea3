"""The DRA driver of the tests, built once into the tests' cache. `python -m tests.e2e.cluster.dra.driver` builds it."""

from pathlib import Path

from tests.support.go_module import GoModule


def program() -> Path:
    """The program. Builds it if it is missing. CalledProcessError if that fails."""
    return _BUILT.folder / "dra-driver"


_BUILT = GoModule(
    name="dra-driver",
    here=Path(__file__).parent,
    fill=lambda module, folder: module.build(folder / "dra-driver", "."),
)
