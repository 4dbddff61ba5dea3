"""A release is the same whoever builds it."""

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

from gpushare import __version__
from tests.packaging.test_release import RELEASE, commit, dated, git, run
from tests.support.clone import copy_to


def test_two_releases_of_one_commit_have_the_same_checksums(tmp_path: Path) -> None:
    """Cloned at different times, and built under different masks."""
    first, second = dated(copy_to(tmp_path / "first")), tmp_path / "second"
    commit(first)
    git(tmp_path, "clone", "--quiet", str(first), str(second))
    done = []
    for tree, mask in ((first, 0o077), (second, 0o002)):
        before = os.umask(mask)
        try:
            done.append(run(tree, "--without-image"))
        finally:
            os.umask(before)
        assert done[-1].returncode == 0, done[-1].stderr
    dist = first / "dist"
    assert (dist / "SHA256SUMS").read_text() == (second / "dist/SHA256SUMS").read_text()
    assert {path.name for path in dist.iterdir()} == RELEASE.contents(__version__, with_image=False)
    assert f"git tag --annotate v{__version__}" in done[0].stdout
    assert "LEFT OUT: the node runtime's image" in done[0].stdout
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=dist, check=True, capture_output=True)
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as packed:
            assert any(name.endswith(".dist-info/licenses/LICENSE") for name in packed.namelist()), wheel.name
            assert {"gpushare/py.typed", "gpushare_node/py.typed"} <= set(packed.namelist())
    for sdist in dist.glob("*.tar.gz"):
        with tarfile.open(sdist) as packed:
            assert packed.getmember(f"{sdist.name.removesuffix('.tar.gz')}/LICENSE").isfile()
