"""What may stand where the lock should: never waited for, never read without end, never followed out of the bundle."""

import os
from pathlib import Path

import pytest

from gpushare.bundle import lock, writer
from gpushare.core.diagnostics import Finding


def fifo(path: Path) -> None:
    os.mkfifo(path)


def endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [fifo, endless, Path.mkdir])
def test_lock_that_is_not_a_regular_file_is_refused(make, tmp_path: Path) -> None:
    make(tmp_path / lock.FILE)
    with pytest.raises(writer.OutputError) as refused:
        writer.read_lock(tmp_path)
    assert str(tmp_path / lock.FILE) in str(refused.value)


def test_a_lock_is_read_up_to_its_limit(tmp_path: Path) -> None:
    with (tmp_path / lock.FILE).open("wb") as file:
        file.truncate(1 << 40)  # a hole: takes no space, and would take all memory
    found = writer.read_lock(tmp_path)
    assert isinstance(found, Finding)
    assert (found.code, found.span is not None) == ("GS790", True)


@pytest.mark.parametrize("path", ["a/" * 2000 + "b", "x" * 5000, "../victim", "/etc/passwd", "a//b", "."])
def test_lock_paths_cannot_leave_the_bundle(path: str) -> None:
    text = lock.text(lock.Lock(files={path: "sha256:" + "0" * 64}))
    found = lock.read(text.encode())
    assert isinstance(found, Finding)
    assert found.code == "GS790"
    assert "in a bundle" in found.message
    assert len(found.message) < 250
