"""The repository's own programs that are in no package, such as `docs/build_site.py`."""

import importlib.util
from types import ModuleType

from tests.support.paths import ROOT


def loaded(path: str) -> ModuleType:
    """The module of a file, run anew; the path is relative to the top of the repository."""
    spec = importlib.util.spec_from_file_location(path.rpartition("/")[2].removesuffix(".py"), ROOT / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
