"""What pip installs works from anywhere: from a clone, from the wheel, from the sdist and in an editable install."""

import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.support.clone import copy_to

DATA = ["compiler/gpushare/schemas", "compiler/gpushare/findings", "profiles", "templates", "charts"]


def run(*command: object, cwd: Path) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "GITHUB_ACTIONS"}}
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("clone") / "gpushare")


@pytest.fixture(scope="module")
def distributions(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, clone, cwd=folder)
    return {path.suffix: path for path in folder.iterdir()}


def install(venv: Path, *what: str | Path, cwd: Path) -> None:
    """Into a new environment, by the pip of this one: to put pip into each takes seconds."""
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=cwd)
    run(sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q", *what, cwd=cwd)


def works_in(venv: Path, place: Path) -> None:
    """The main job in an empty folder: data files of every kind are needed for it."""
    place.mkdir()
    program = venv / "bin" / "gpushare"
    assert (venv / "bin" / "kubectl-gpushare").exists()
    (place / "intent.yaml").write_text(run(program, "init", cwd=place))
    run(program, "compile", "intent.yaml", cwd=place)
    assert (place / "bundle" / "chart" / "Chart.yaml").is_file()
    assert (place / "bundle" / "chart" / ".helmignore").is_file()
    assert "GS402" in run(program, "explain", "GS402", cwd=place)
    assert "a100-sxm4-40gb" in run(program, "cards", cwd=place)
    assert "$schema" in run(program, "schema", cwd=place)
    assert run(venv / "bin" / "python", "-m", "gpushare", "--version", cwd=place).strip()


@pytest.mark.parametrize("form", ["clone", "wheel", "sdist", "editable"])
def test_an_install_works_from_an_empty_folder(form: str, clone: Path, distributions: dict[str, Path], tmp_path: Path) -> None:
    what: dict[str, list[str | Path]] = {
        "clone": [clone],
        "wheel": [distributions[".whl"]],
        "sdist": [distributions[".gz"]],
        "editable": ["-e", clone],
    }
    venv = tmp_path / "venv"
    install(venv, *what[form], cwd=tmp_path)
    works_in(venv, tmp_path / "empty")


def test_both_packages_of_a_clone_install_together(clone: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    install(venv, ".", "./node-runtime", cwd=clone)
    assert run(venv / "bin" / "gpushare-node", "--version", cwd=tmp_path).startswith("gpushare-node ")
    works_in(venv, tmp_path / "empty")


def test_wheel_and_sdist_hold_every_data_file(clone: Path, distributions: dict[str, Path]) -> None:
    files = (path for folder in DATA for path in (clone / folder).rglob("*") if path.is_file())
    data = [path for path in files if path.suffix not in {".py", ".pyc"}]
    with zipfile.ZipFile(distributions[".whl"]) as wheel:
        inside = set(wheel.namelist())
    with tarfile.open(distributions[".gz"]) as sdist:
        packed = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    for path in data:
        name = str(path.relative_to(clone))
        assert name in packed, f"{name} is not in the sdist"
        assert f"gpushare/{name.removeprefix('compiler/gpushare/')}" in inside, f"{name} is not in the wheel"
