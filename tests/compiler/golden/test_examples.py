"""Every example is a promise: it compiles without an error, to exactly the bundle beside it, on every Python.

What a bundle has as it stands in charts/gpushare is beside the first example alone, so that a change of the chart is one diff.
"""

import shutil
from pathlib import Path

import pytest

from gpushare.core.diagnostics import is_error
from gpushare.pipeline import Compilation
from tests.compiler.cli.process import gpushare
from tests.compiler.golden.update import CHART, compiled, examples, kept

IDS = [example.name for example in examples()]
MEANT = "run `make golden` if this is meant"


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in sorted(folder.rglob("*")) if path.is_file()}


def texts(compilation: Compilation) -> dict[str, str]:
    return {artifact.path: artifact.text for artifact in compilation.artifacts}


def test_there_are_at_least_ten_examples_each_with_a_short_readme() -> None:
    assert len(IDS) >= 10
    for example in examples():
        lines = (example / "README.md").read_text().splitlines()
        assert lines[0].startswith("# "), example.name
        assert 5 <= len(lines) <= 16, f"{example.name}: README.md is to be about ten lines"


@pytest.mark.parametrize("example", examples(), ids=IDS)
def test_an_example_compiles_to_the_bundle_beside_it(example: Path) -> None:
    compilation = compiled(example)
    assert not [finding.message for finding in compilation.findings if is_error(finding)]
    expected = files(example / "bundle")
    actual = texts(compilation)
    assert sorted(artifact.path for artifact in kept(example, compilation.artifacts)) == sorted(expected), MEANT
    for path, text in expected.items():
        assert actual[path] == text, f"{path} differs: {MEANT}"
    chart = {f"chart/{path}": text for path, text in files(CHART).items()}
    optional = tuple(f"chart/templates/{part}/" for part in ("dra", "monitoring", "vendors", "vgpu"))
    assert {path for path in chart if not path.startswith(optional)} <= actual.keys()
    for path in actual.keys() - expected.keys():
        assert actual[path] == chart[path], f"{path} is neither committed nor the chart's"


def test_only_the_first_example_commits_its_chart() -> None:
    first, *others = examples()
    chart = {f"chart/{path}": text for path, text in files(CHART).items()}
    assert files(first / "bundle") == texts(compiled(first))
    for example in others:
        assert not files(example / "bundle").items() & chart.items(), f"{example.name}: {MEANT}"


@pytest.mark.parametrize("example", examples(), ids=IDS)
def test_compile_completes_a_committed_bundle_without_changes(example: Path, tmp_path: Path) -> None:
    place = Path(shutil.copytree(example, tmp_path / example.name))
    done = gpushare("compile", "--strict", place / "intent.yaml")
    assert (done.returncode, done.stderr) == (0, "")
    assert files(place / "bundle") == texts(compiled(example))
    assert files(example / "bundle").items() <= files(place / "bundle").items()


@pytest.mark.parametrize("example", examples(), ids=IDS)
def test_example_passes_a_strict_check_and_accepts_its_warnings(example: Path) -> None:
    compilation = compiled(example)
    assert [(finding.code, finding.message) for finding in compilation.findings] == []
    assert all(len(accepted.reason.split()) > 3 for accepted in compilation.accepted)
