"""Temporary files lie in memory only where they fit and programs may run from it, and none of them outlives the next run."""

import os
import subprocess
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import in_memory


@pytest.fixture
def shared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder in memory, which is large."""
    monkeypatch.setattr(in_memory, "_SHARED", made := tmp_path / "shared")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made.mkdir()
    has(monkeypatch)
    return made


def has(monkeypatch: pytest.MonkeyPatch, **more: int) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**({"f_blocks": 2**22, "f_frsize": 4096, "f_flag": 0} | more)))


def test_a_large_one_is_taken(shared: Path) -> None:
    with in_memory.folder() as made:
        assert made.parent == shared
        assert made.stat().st_mode & 0o7777 == 0o1777
    assert list(shared.iterdir()) == []


@pytest.mark.parametrize("more", [{"f_blocks": 16384}, {"f_flag": os.ST_NOEXEC}, {"f_flag": os.ST_RDONLY}])
def test_one_that_does_not_serve_is_left(monkeypatch: pytest.MonkeyPatch, shared: Path, more: dict[str, int]) -> None:
    has(monkeypatch, **more)
    with in_memory.folder() as made:
        assert made.parent == shared.parent


def test_what_killed_runs_left_goes_and_what_others_use_stays(shared: Path) -> None:
    ended = subprocess.Popen("true")
    ended.wait()
    (shared / f"gpushare-{ended.pid}-abc" / "files").mkdir(parents=True)
    kept = {shared / f"gpushare-{os.getpid()}-abc", shared / "gpushare-clusters", shared / "other"}
    for folder in kept:
        folder.mkdir()
    with in_memory.folder() as made:
        assert set(shared.iterdir()) == {*kept, made}
