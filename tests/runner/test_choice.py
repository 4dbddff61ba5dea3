"""Which suites run, and what is said of those that do not."""

import os
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.runner import builds, choice, needs, shards, suites, unit
from tests.runner.suites import SUITES, Suite
from tests.support import c_compiler
from tests.support.paths import ROOT
from tests.support.scale import users

FOLDERS = {word for suite in SUITES for word in suite.folders if not word.startswith("-")}


def names(chosen: list[Suite]) -> set[str]:
    return {suite.name for suite in chosen}


def test_all_suites_but_gpu_and_vendors_are_chosen_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NVIDIA", "AMD"):
        monkeypatch.delenv(name, raising=False)
    chosen, left_out = choice.choose("", "")
    gpu = {"gpu"} if not Path(suites.NVIDIA_DEVICE).exists() else set()
    assert set(suites.NAMES) - names(chosen) == {"nvidia", "amd"} | gpu
    assert {"LEFT OUT  nvidia: NVIDIA=FOLDER is not given", "LEFT OUT  amd: AMD=FOLDER is not given"} <= set(left_out)


def test_skipped_suites_are_listed() -> None:
    chosen, left_out = choice.choose("", "gitops,pages")
    assert {"gitops", "pages"}.isdisjoint(names(chosen))
    assert {"LEFT OUT  gitops: SKIP names it", "LEFT OUT  pages: SKIP names it"} <= set(left_out)


@pytest.mark.parametrize(
    ("wanted", "unwanted", "words"),
    [
        ("clusters", "", "no suite 'clusters'; there are cluster, "),
        ("", "page", "no suite 'page'"),
        ("pages", "pages", "no suite is left"),
    ],
)
def test_a_name_that_no_suite_has_and_an_empty_choice_are_errors(wanted: str, unwanted: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        choice.choose(wanted, unwanted)


def test_suite_requested_by_name_reports_its_missing_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NVIDIA", raising=False)
    chosen, _ = choice.choose("nvidia", "")
    assert "NVIDIA=FOLDER is not given" in list(needs.missing(chosen[0]))


def test_every_file_with_tests_is_in_make_test_or_in_one_suite() -> None:
    ours = [path.relative_to(ROOT) for path in (ROOT / "tests").rglob("test_*.py")]
    elsewhere = [path for path in ours if path.parts[1] in ("e2e", "long")]
    assert elsewhere
    for path in elsewhere:
        of = [suite.name for suite in SUITES if str(path) in {str(one) for one in shards.tests(suite.folders)}]
        assert len(of) == 1, f"{path}: {of}"


def test_missing_nvidia_folder_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NVIDIA", "/nowhere")
    chosen, _ = choice.choose("nvidia")
    assert "NVIDIA=/nowhere is no folder" in list(needs.missing(chosen[0]))


def test_a_shard_without_a_file_is_an_error() -> None:
    chosen, _ = choice.choose("pages")
    with pytest.raises(choice.ChoiceError, match="SHARD=99/99 has no file of pages"):
        choice.divide(chosen, "99/99")


@pytest.mark.parametrize("module", builds.modules(SUITES))
def test_every_build_module_is_executable(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert (path / "__main__.py").is_file() or "__main__" in path.with_suffix(".py").read_text()


def test_every_file_and_folder_of_a_suite_is_there() -> None:
    assert [name for name in sorted(FOLDERS) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("suite", SUITES, ids=lambda suite: suite.name)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_shards_together_have_every_file_once(suite: Suite, count: int) -> None:
    parts = [shards.files(suite.folders, (number, count)) for number in range(1, count + 1)]
    chosen = sorted(path for part in parts for path in part if not path.startswith("-"))
    assert chosen == sorted(str(path) for path in shards.tests(suite.folders))
    assert all(("--long" in part) == ("--long" in suite.folders) for part in parts if part)


def test_suite_long_runs_every_file_that_uses_the_scale() -> None:
    [long] = [suite for suite in SUITES if suite.name == "long"]
    whole = {str(path) for path in shards.tests(long.folders)}
    ours = [path for path in (ROOT / "tests").rglob("test_*.py") if "e2e" not in path.parts]
    use = re.compile(r"\bscale\.(is_long|examples|some|part)\b")
    scaled = {str(path.relative_to(ROOT)) for path in ours if use.search(path.read_text())}
    assert {"tests/chart/test_compiled.py", "tests/chart/test_objects.py", "tests/node/enforce/test_fuzz.py"} <= scaled
    assert scaled - whole == set()
    assert [name for name in sorted(scaled) if not any(one.startswith("test_") for one in users(ROOT / name))] == []


def test_long_selects_exactly_the_tests_that_depend_on_the_scale(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(
        textwrap.dedent("""\
        from tests.support import SCALE
        MANY = SCALE.examples(100)
        FEW = 3

        def each(): return range(MANY)

        @pytest.fixture
        def folder(): return SCALE.is_long

        @settings(max_examples=SCALE.examples(9))
        def test_decorated(): ...
        def test_in_its_body(): return SCALE.some([1], 2)
        def test_of_a_helper(): return each()
        def test_of_a_fixture(folder): ...
        @pytest.mark.parametrize("number", range(MANY))
        def test_of_a_constant(number): ...
        def test_alone(): return FEW, "scale", MANY_OTHERS
        """).replace("SCALE", "scale")
    )
    tests = {name for name in users(file) if name.startswith("test_")}
    assert tests == {"test_decorated", "test_in_its_body", "test_of_a_helper", "test_of_a_fixture", "test_of_a_constant"}


def test_recorded_files_are_there_and_the_shards_of_the_cluster_are_even() -> None:
    recorded = shards.recorded_seconds()
    assert all((ROOT / name).is_file() for name in recorded)
    parts = [shards.files(suites.CLUSTER.folders, (number, 3)) for number in (1, 2, 3)]
    loads = [sum(shards._seconds(Path(name)) for name in part) for part in parts]
    assert max(loads) < 1.2 * min(loads)


@pytest.mark.parametrize("text", ["0/3", "4/3", "1", "a/b", "1/0", "-1/3"])
def test_invalid_shard_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=f"SHARD={text} is not N/M"):
        shards.read(text)


def runs(*words: str, path: str, **more: str) -> subprocess.CompletedProcess[str]:
    """The runner as a process, with this PATH."""
    environment = {key: value for key, value in os.environ.items() if key not in ("CC", "PYTEST_ADDOPTS")}
    return subprocess.run(
        [sys.executable, "-m", "tests.runner", *words],
        cwd=ROOT,
        env={**environment, "PATH": path, **more},
        capture_output=True,
        text=True,
        check=False,
    )


def test_missing_tool_fails_early_with_the_install_command(tmp_path: Path) -> None:
    done = runs("all", "--suite", "pages", path=str(tmp_path))
    assert done.returncode == 2
    assert "pages: chromium is missing (Debian: chromium)\n" in done.stderr
    assert "`make test-deps` installs Debian's packages; `make test-all SKIP=pages` runs the rest." in done.stderr
    assert done.stdout == ""


def test_without_a_compiler_make_test_is_an_error(tmp_path: Path) -> None:
    done = runs("unit", path=str(tmp_path))
    assert done.returncode == 2
    assert "make test: no C compiler: no cc, gcc or clang on PATH (Debian: gcc, libc6-dev" in done.stderr


def test_missing_go_error_names_its_download_page(tmp_path: Path) -> None:
    done = runs("all", "--suite", "judges", path=str(tmp_path))
    assert done.returncode == 2
    assert "judges: go is missing: install Go 1.26 from https://go.dev/dl\n" in done.stderr


def test_without_linux_make_test_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    [reason] = unit.missing()
    assert reason.startswith("the tests need Linux, not darwin")


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Makes a compiler of one's own the only one."""

    def make(script: str) -> None:
        program = tmp_path / "own-cc"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("CC", str(program))

    c_compiler.command.cache_clear()
    monkeypatch.setattr(c_compiler, "command", c_compiler.command.__wrapped__)
    return make


def test_a_compiler_is_found_by_compiling(compiler: Callable[[str], None]) -> None:
    compiler("exit 0")
    assert c_compiler.command()[0].endswith("own-cc")


def test_compiler_without_headers_is_not_accepted(compiler: Callable[[str], None]) -> None:
    compiler("echo 'stdio.h: No such file or directory' >&2; exit 1")
    with pytest.raises(c_compiler.NoCompilerError, match=r"own-cc makes no program: stdio.h: No such file or directory"):
        c_compiler.command()
