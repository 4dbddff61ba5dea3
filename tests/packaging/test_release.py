"""`make release`: what it refuses, what it writes, and that the same commit gives the same bytes."""

import os
import re
import runpy
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpushare import __version__
from tests.support import helm
from tests.support.paths import ROOT

RELEASE = SimpleNamespace(**runpy.run_path(str(ROOT / ".ci/release.py")))
PARTS = [
    ".ci",
    "charts",
    "compiler/gpushare/__init__.py",
    "node-runtime/gpushare_node/__init__.py",
    "CHANGELOG.md",
    "examples/01-heterogeneous/bundle/chart",
]
GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1", "TZ": "UTC"} | {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in {"NAME": "a", "EMAIL": "a@example.org", "DATE": "2026-11-23T12:00:00Z"}.items()
}


def git(tree: Path, *arguments: str) -> str:
    command: list[str | Path] = ["git", "-C", tree, *arguments]
    return subprocess.run(command, env={**os.environ, **GIT}, check=True, capture_output=True, text=True).stdout.strip()


def commit(tree: Path) -> None:
    git(tree, "init", "--quiet")
    git(tree, "add", "--all")
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "a commit")


def run(tree: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command: list[str | Path] = [sys.executable, tree / ".ci/release.py", *arguments]
    return subprocess.run(command, env={**os.environ, **GIT, **environment}, capture_output=True, text=True, check=False)


def dated(tree: Path) -> Path:
    changelog = tree / "CHANGELOG.md"
    title = re.compile(rf"^## {re.escape(__version__)} .*", re.MULTILINE)
    changelog.write_text(title.sub(f"## {__version__} — 2026-11-23", changelog.read_text()))
    return tree


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """What a release looks at before it builds, and a project that no builder accepts."""
    tree = tmp_path / "tree"
    for part in PARTS:
        (tree / part).parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, tree / part)
    (tree / ".gitignore").write_text("/build/\n/dist/\n__pycache__/\n")
    (tree / "pyproject.toml").write_text("this is not TOML")
    commit(dated(tree))
    return tree


def edit(name: str, old: str, new: str) -> Callable[[Path], None]:
    def apply(tree: Path) -> None:
        text = (tree / name).read_text()
        assert old in text
        (tree / name).write_text(text.replace(old, new))

    return apply


REFUSED = {
    "a changed file": (edit("pyproject.toml", "not", "no"), False, "the working tree has changes (pyproject.toml)"),
    "a new file": (lambda tree: (tree / "new").touch(), False, "the working tree has changes (new)"),
    "compiler": (edit("compiler/gpushare/__init__.py", __version__, "9.9.9"), True, "9.9.9 in compiler/gpushare/__init__.py"),
    "runtime": (edit("node-runtime/gpushare_node/__init__.py", __version__, "9.9.9"), True, "9.9.9 in node-runtime/"),
    "chart": (
        edit("charts/gpushare/Chart.yaml", f"\nversion: {__version__}", "\nversion: 9.9.9"),
        True,
        "9.9.9 in charts/gpushare/Chart.yaml version: write one version everywhere",
    ),
    "app": (edit("charts/gpushare/Chart.yaml", f'"{__version__}"', '"9.9.9"'), True, "Chart.yaml appVersion: write"),
    "image": (edit("charts/gpushare/values.yaml", f'tag: "{__version__}"', "tag: 9.9.9"), True, "values.yaml image.tag: write"),
    "example": (edit("examples/01-heterogeneous/bundle/chart/Chart.yaml", __version__, "9.9.9"), True, "run `make golden`"),
    "no section": (edit("CHANGELOG.md", f"## {__version__} ", f"## {__version__}0 "), True, "has no section for"),
    "unreleased": (edit("CHANGELOG.md", "2026-11-23", "unreleased"), True, f"CHANGELOG.md has `## {__version__} — unreleased`"),
    "no date": (edit("CHANGELOG.md", " — 2026-11-23", ""), True, f"CHANGELOG.md has `## {__version__}`: replace it"),
    "empty": (
        lambda tree: (tree / "CHANGELOG.md").write_text(f"## {__version__} — 2026-11-23\n\n## 0.0.1\n\n- old\n"),
        True,
        f"the section for {__version__} in CHANGELOG.md is empty",
    ),
}


@pytest.mark.parametrize(("change", "committed", "told"), REFUSED.values(), ids=REFUSED)
def test_release_is_refused_before_building(change: Callable[[Path], None], committed: bool, told: str, tree: Path) -> None:
    change(tree)
    if committed:
        commit(tree)
    done = run(tree, "--without-image")
    assert (done.returncode, done.stdout) == (1, "")
    assert told in done.stderr
    assert not (tree / "build").exists()
    assert not (tree / "dist").exists()


@pytest.mark.parametrize("annotated", [(), ("--annotate", "--message=x")], ids=["light", "annotated"])
def test_a_version_is_released_once(annotated: tuple[str, ...], tree: Path) -> None:
    git(tree, "tag", *annotated, f"v{__version__}")
    assert "the tag" not in run(tree, "--without-image").stderr
    commit(tree)
    assert f"the tag v{__version__} is at {git(tree, 'rev-parse', 'HEAD^')[:12]}" in run(tree, "--without-image").stderr


@pytest.mark.parametrize("name", ["gpushare_compiler-9.9.9.tar.gz", f"gpushare_compiler-{__version__}.tar.gz"])
def test_foreign_file_in_dist_is_kept(name: str, tree: Path) -> None:
    (tree / "dist").mkdir()
    (tree / "dist" / name).write_text("of somebody else")
    done = run(tree, "--without-image")
    assert f"has written ({name}): remove dist/" in done.stderr
    assert [path.name for path in (tree / "dist").iterdir()] == [name]


def test_failed_release_leaves_dist_unchanged(tree: Path) -> None:
    absent = run(tree, "--without-image")
    assert absent.returncode == 1
    assert "pyproject.toml" in absent.stderr
    assert not (tree / "dist").exists()
    (tree / "dist").mkdir()
    (tree / "dist" / f"gpushare_compiler-{__version__}.tar.gz").write_text("of the release before")
    (tree / "dist/SHA256SUMS").write_text(RELEASE.checksums(tree / "dist"))
    present = run(tree, "--without-image")
    assert "dist/ is as it was" in present.stderr
    assert (tree / "dist" / f"gpushare_compiler-{__version__}.tar.gz").read_text() == "of the release before"
    assert list((tree / "build").iterdir()) == []


def test_missing_image_tools_are_listed(tree: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "git").symlink_to(str(shutil.which("git")))
    told = run(tree, "--base=debian", PATH=str(tools)).stderr
    assert "the image cannot be built without buildah, mmdebstrap" in told
    assert "make release ARGS=--without-image" in told
    assert not (tree / "build").exists()
    assert "buildah" not in run(tree, "--without-image", PATH=str(tools)).stderr


def test_non_root_gets_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: tool)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert list(RELEASE.lacking(None)) == []
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    [told] = RELEASE.lacking(None)
    assert "root's rights" in told


def test_a_release_has_one_distribution() -> None:
    python = {name for name in RELEASE.contents("1.0", with_image=True) if name.endswith((".whl", ".tar.gz"))}
    assert python == {"gpushare_compiler-1.0-py3-none-any.whl", "gpushare_compiler-1.0.tar.gz"}


def test_the_notes_are_the_section_of_the_version_alone() -> None:
    newest = "# Changelog\n\n## 1.10.0 — unreleased\n\n- c\n\n"
    changelog = f"{newest}## 1.1.0 — 2026-01-01\n\n- a\n\n### Fixes\n\n- b\n\n## 1.0.0\n\n- d"
    assert RELEASE.changelog_section(changelog, "1.1.0") == (" — 2026-01-01", "- a\n\n### Fixes\n\n- b")
    assert RELEASE.changelog_section(changelog, "1.0.0") == ("", "- d")
    assert RELEASE.changelog_section(changelog, "1.1") is None
    assert RELEASE.changelog_section(changelog, "1x0.0") is None


def test_a_package_depends_on_names_content_and_execution_bits_alone(tmp_path: Path) -> None:
    archives = []
    for number, names in enumerate((["a", "folder/b"], ["folder/b", "a"])):
        folder = tmp_path / str(number)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(name)
            (folder / name).chmod((0o744, 0o755)[number])
            os.utime(folder / name, (number, number))
        archives.append(tmp_path / f"{number}.tgz")
        RELEASE.pack(folder, archives[-1], 1_800_000_000)
    assert archives[0].read_bytes() == archives[1].read_bytes()
    with tarfile.open(archives[0]) as packed:
        assert {(one.name, one.mtime, one.mode, one.uid, one.uname) for one in packed} == {
            (name, 1_800_000_000, 0o755, 0, "") for name in ("a", "folder", "folder/b")
        }


def test_two_packages_of_the_chart_have_the_same_bytes_and_render_as_the_folder(tmp_path: Path) -> None:
    packages = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        RELEASE.build_chart(ROOT, tmp_path / name)
        [package] = (tmp_path / name).iterdir()
        RELEASE.repack(package, 1_800_000_000)
        packages.append(package)
    assert packages[0].read_bytes() == packages[1].read_bytes()
    with tarfile.open(packages[0]) as packed:
        assert {member.mtime for member in packed} == {1_800_000_000}
    for command in (["show", "all"], ["lint", "--strict"]):
        outputs = [
            subprocess.run([helm.helm(), *command, chart], capture_output=True, text=True, check=True).stdout
            for chart in (packages[0], ROOT / "charts/gpushare")
        ]
        assert outputs[0].replace(str(packages[0]), "") == outputs[1].replace(str(ROOT / "charts/gpushare"), "")
