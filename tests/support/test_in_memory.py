"""Temporary files lie in memory only where they fit and programs may run from it, and none of them outlives the next run."""

import fcntl
import os
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
    """A folder of another name is nobody's here, also one that looks like a release; one that is new may be locked yet."""
    made = {name: shared / f"gpushare-run-{name}" for name in ("killed00", "used0000", "new00000")}
    other = shared / "gpushare-0.1.0-download"
    for folder in (*made.values(), other):
        (folder / "files").mkdir(parents=True)
        os.utime(folder, (0, 0) if folder != made["new00000"] else None)
    lock = os.open(made["used0000"], os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with in_memory.folder() as own:
            assert set(shared.iterdir()) == {made["used0000"], made["new00000"], other, own}
    finally:
        os.close(lock)


def test_a_folder_in_use_is_locked(shared: Path) -> None:
    with in_memory.folder() as first:
        os.utime(first, (0, 0))
        with in_memory.folder():
            assert first.is_dir()
