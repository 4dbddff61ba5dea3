"""What pip installs works from anywhere: by every line of our texts, from the wheel, the sdist and in an editable install."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml

from gpushare import __version__
from tests.compiler.cluster.live.clusters import INTENT, lively
from tests.packaging.test_release import commit, git
from tests.support import install_lines
from tests.support.clone import copy_to
from tests.support.fake_api.server import ApiServer
from tests.support.package_index import package_index
from tests.support.paths import ROOT

FOLDERS = {
    "compiler/gpushare": "gpushare",
    "node-runtime/gpushare_node": "gpushare_node",
    "profiles": "gpushare/profiles",
    "templates": "gpushare/templates",
    "charts": "gpushare/charts",
}
"""Where the wheel has the files of a folder."""


def run(*command: object, cwd: Path, **more: str) -> str:
    environment = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "GITHUB_ACTIONS"}} | more
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_to(tmp_path_factory.mktemp("clone") / "gpushare")


@pytest.fixture(scope="module")
def distributions(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The sdist, and the wheel built from the sdist, by the names of project and file."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, clone, cwd=folder)
    return {f"{path.name.partition('-')[0]}{path.suffix}": path for path in folder.iterdir()}


@pytest.fixture(scope="module")
def wheels(clone: Path, distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What both projects and their builds need: to choose it from all releases of all projects takes half a minute, once."""
    folder = tmp_path_factory.mktemp("wheels")
    builds = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    ours = [distributions["gpushare_compiler.whl"], clone / "node-runtime"]
    run(sys.executable, "-m", "pip", "download", "-q", "--dest", folder, *ours, *builds, cwd=folder)
    return folder


def install(venv: Path, *what: str | Path, wheels: Path, cwd: Path) -> None:
    """Into a new environment, by the pip of this one: to put pip into each takes seconds."""
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=cwd)
    words = ("-m", "pip", "--python", venv / "bin" / "python", "install", "-q", "--no-compile")
    run(sys.executable, *words, *what, cwd=cwd, PIP_NO_INDEX="1", PIP_FIND_LINKS=str(wheels))


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


@pytest.mark.parametrize("form", ["sdist", "editable"])
def test_an_install_works_from_an_empty_folder(
    form: str, clone: Path, distributions: dict[str, Path], wheels: Path, tmp_path: Path
) -> None:
    what: dict[str, list[str | Path]] = {
        "sdist": [distributions["gpushare_compiler.gz"]],
        "editable": ["-e", clone],
    }
    venv = tmp_path / "venv"
    install(venv, *what[form], wheels=wheels, cwd=tmp_path)
    works_in(venv, tmp_path / "empty")


def reads_a_cluster(venv: Path, place: Path) -> None:
    """The commands that need the Kubernetes client, which no other command imports."""
    (place / "live.yaml").write_text(INTENT)
    with ApiServer(token="secret") as api:
        lively(api)
        environment = api.kubeconfig(place / "kubeconfig")
        assert "notebooks" in run(venv / "bin" / "gpushare", "status", cwd=place, **environment)
        assert "GPUBusy" in run(venv / "bin" / "gpushare", "explain", "t4-2", cwd=place, **environment)
        words = [str(venv / "bin" / "gpushare"), "drift", "live.yaml", "--format", "json"]
        done = subprocess.run(words, cwd=place, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert (done.returncode, yaml.safe_load(done.stdout)["kind"]) == (3, "Drift"), done.stderr


def advises(venv: Path, place: Path) -> None:
    """The command that runs code of the node runtime."""
    samples = "".join(f"{time},atlas,job,,,,1000Mi,\n" for time in (1735689600, 1735689660))
    (place / "use.csv").write_text(f"time,namespace,pod,container,pool,device,used,cap\n{samples}")
    words = [str(venv / "bin" / "gpushare"), "advise", "intent.yaml", "--usage", "use.csv"]
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def named_source() -> str:
    """The place of the sources that the pipelines of docs/pipelines install from."""
    texts = [path.read_text() for path in sorted((ROOT / "docs/pipelines").glob("*.yaml"))]
    [source] = {place for text in texts for place in re.findall(r"^ +GPUSHARE: (\S+)$", text, re.MULTILINE)}
    return str(source)


@pytest.mark.parametrize("line", install_lines.install_lines())
def test_a_line_of_our_texts_installs_what_it_names(
    line: str, distributions: dict[str, Path], wheels: Path, tmp_path: Path
) -> None:
    clone, index, venv = copy_to(tmp_path / "clone"), tmp_path / "index", tmp_path / "venv"
    commit(clone)
    git(clone, "tag", f"v{__version__}")
    index.mkdir()
    for name, path in {path.name: path for path in (*wheels.iterdir(), *distributions.values())}.items():
        if name.startswith("gpushare_node"):  # no index has it
            continue
        (index / name).symlink_to(path)
    source = named_source()
    repository = source.removeprefix("git+").rpartition("@")[0]
    run(sys.executable, "-m", "venv", venv, cwd=tmp_path)
    with package_index(index) as address:
        surroundings = {
            "PATH": f"{venv}/bin{os.pathsep}{os.environ['PATH']}",
            "PIP_INDEX_URL": f"{address}/simple",
            "GPUSHARE": source,
            "PIP_NO_COMPILE": "no",  # that is yes: a thousand modules of kubernetes, of which the program imports a few
            # git asks the clone for what the pipelines ask their server for.
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": f"url.file://{clone}.insteadOf",
            "GIT_CONFIG_VALUE_0": repository,
        }
        run("bash", "-ec", re.sub(r"^\.venv/bin/", f"{venv}/bin/", line), cwd=clone, **surroundings)
    installed = {path.name for path in (venv / "bin").iterdir()}
    for project in install_lines.projects(line):
        run(sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "show", "--quiet", project, cwd=tmp_path)
    assert ("gpushare-node" in installed) == ("node-runtime" in line)
    if "gpushare-node" in installed:
        assert run(venv / "bin" / "gpushare-node", "--version", cwd=tmp_path).startswith("gpushare-node ")
    has_compiler = {".", '"$GPUSHARE"'} & set(line.split()) or "gpushare-compiler" in install_lines.projects(line)
    assert ("gpushare" in installed) == bool(has_compiler)
    if "gpushare" in installed:
        works_in(venv, tmp_path / "empty")
        reads_a_cluster(venv, tmp_path / "empty")
        advises(venv, tmp_path / "empty")


def test_wheel_and_sdist_hold_every_file(clone: Path, distributions: dict[str, Path]) -> None:
    assert {name.partition(".")[0] for name in distributions} == {"gpushare_compiler"}
    with zipfile.ZipFile(distributions["gpushare_compiler.whl"]) as wheel:
        inside = set(wheel.namelist())
    with tarfile.open(distributions["gpushare_compiler.gz"]) as sdist:
        packed = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    for folder, place in FOLDERS.items():
        for path in (clone / folder).rglob("*"):
            if path.is_file() and path.suffix != ".pyc":
                assert str(path.relative_to(clone)) in packed, f"{path} is not in the sdist"
                assert f"{place}/{path.relative_to(clone / folder)}" in inside, f"{path} is not in the wheel"
