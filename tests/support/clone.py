"""A copy of the repository to build from: setuptools builds inside the source folder, where two tests would meet."""

import shutil
from pathlib import Path

from tests.support.paths import ROOT

LEFT_OVER = (".git", "*venv*", "build", "dist", "*.egg-info", "__pycache__", ".cache", "*_cache", ".hypothesis")


def copy_to(target: Path) -> Path:
    """The repository's files in `target`, without what builds and tests left in it. It need not be a git checkout."""
    return Path(shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT_OVER)))
