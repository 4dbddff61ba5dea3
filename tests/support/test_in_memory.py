"""The folder in memory is taken only where a run's files fit into it and programs may run from it."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import in_memory

ELSEWHERE = Path("/elsewhere")
LARGE = SimpleNamespace(f_blocks=4 * 1024**2, f_frsize=4096, f_flag=0)


def chosen(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: int) -> Path:
    monkeypatch.setattr(in_memory, "_SHARED", folder)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(**{**vars(LARGE), **more}))
    return in_memory.folder_for(otherwise=ELSEWHERE)


def test_a_large_one_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert chosen(monkeypatch, tmp_path) == tmp_path


@pytest.mark.parametrize("more", [{"f_blocks": 16384}, {"f_flag": os.ST_NOEXEC}, {"f_flag": os.ST_RDONLY}])
def test_one_that_does_not_serve_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, more: dict[str, int]) -> None:
    assert chosen(monkeypatch, tmp_path, **more) == ELSEWHERE


def test_a_machine_without_one_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_memory, "_SHARED", Path("/dev/null/none"))
    assert in_memory.folder_for(otherwise=ELSEWHERE) == ELSEWHERE
