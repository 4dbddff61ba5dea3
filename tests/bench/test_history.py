"""The history of the benchmarks: one line for each run, with the commit that was measured."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.bench.history import HISTORY, Line, append, tell


def bench() -> Iterator[Line]:
    yield Line("ours 12 ms, theirs 24 ms: ratio 0.50", {"some.time": 0.49999})
    yield Line("a remark")
    yield Line("memory: ratio 2", {"some.memory": 2.0})


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=Some One", "-c", "user.email=someone@example.org")
    return subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    git(tmp_path, "init", "--quiet")
    (tmp_path / "docs").mkdir()
    (tmp_path / "code").write_text("1")
    git(tmp_path, "add", "code")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return tmp_path


def runs(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (root / HISTORY).read_text().splitlines()]


def test_benchmark_lines_are_printed_and_figures_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    assert tell(bench()) == {"some.time": 0.49999, "some.memory": 2.0}
    assert capsys.readouterr().out.splitlines() == [line.text for line in bench()]


def test_duplicate_figure_names_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"some\.time"):
        tell([*bench(), *bench()])


def test_each_run_appends_one_line(root: Path) -> None:
    append({"some.time": 0.49999}, root)
    append({"some.time": 1234.5}, root)
    assert [run["figures"] for run in runs(root)] == [{"some.time": 0.5}, {"some.time": 1230.0}]
    assert all(run["date"] and run["machine"] for run in runs(root))


def test_changed_history_alone_does_not_mark_the_commit_dirty(root: Path) -> None:
    head = git(root, "rev-parse", "--short=12", "HEAD")
    append({}, root)
    append({}, root)
    (root / "code").write_text("2")
    append({}, root)
    assert [run["commit"] for run in runs(root)] == [head, head, f"{head}+dirty"]
