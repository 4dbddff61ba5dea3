"""The runner itself: what failed is tried once more, and what passes only then fails the run and is named with its seed."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.runner import builds, lanes, report, running, suites, unit
from tests.runner.suites import Suite
from tests.support.forked import Process
from tests.support.paths import ROOT
from tests.support.waiting import PATIENCE, wait_for

PRELOADED = ("pytest", "xdist.plugin", "xdist.looponfail", "_hypothesis_pytestplugin", "hypothesis")

TESTS = """
from pathlib import Path
import pytest

def test_steady():
    pass

def test_unsteady():
    flag = Path("flag")
    was_there = flag.exists()
    flag.touch()
    assert was_there
"""
SEEDED = """
def test_seeded(pytestconfig):
    with open("seeds", "a") as file:
        print(pytestconfig.getoption("hypothesis_seed"), file=file)
    assert len(Path("seeds").read_text().split()) == 2
"""
WRONG = """
def test_wrong():
    assert False
"""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    Path("pytest.ini").write_text("[pytest]\n")


def outcome(text: str) -> running.Outcome:
    """Of runs of pytest that are forked: the tests of lanes start it."""
    Path("test_it.py").write_text(text)
    return running.run(["test_it.py"], call=call)


def call(command: Sequence[str]) -> int:
    assert command[1:3] == ["-m", "pytest"]
    with Process("import sys, pytest\nsys.exit(pytest.main())", command[3:], PRELOADED, environment=os.environ) as process:
        return process.wait(PATIENCE)


def test_pass_only_on_the_second_try_is_reported_as_unsteady() -> None:
    found = outcome(TESTS)
    assert (found.word, found.unsteady, found.is_good) == ("UNSTEADY", ("test_it.py::test_unsteady",), False)
    again = f"  passed only at the second try (--hypothesis-seed={found.seed}): test_it.py::test_unsteady"
    assert again in report.lines("some", found)


def test_both_tries_have_the_seed_that_is_reported() -> None:
    found = outcome(TESTS + SEEDED)
    assert Path("seeds").read_text().split() == [str(found.seed)] * 2


def test_second_failure_fails_the_run_and_unsteady_tests_are_listed() -> None:
    found = outcome(TESTS + WRONG)
    assert (found.word, found.failed, found.unsteady) == ("FAILED", ("test_it.py::test_wrong",), ("test_it.py::test_unsteady",))


def test_passing_tests_are_run_once_and_counted() -> None:
    found = outcome(TESTS.replace("assert was_there", "assert not was_there"))
    assert (found.word, found.passed, found.is_good) == ("passed", 2, True)
    assert report.totals([found, found]) == "4 passed, 0 failed, 0 skipped"
    report.write_seconds([found], Path("build/seconds.json"))
    assert list(json.loads(Path("build/seconds.json").read_text())) == ["test_it.py"]


def test_a_run_that_tested_nothing_is_a_failure() -> None:
    found = outcome("x = 1\n")
    assert (found.word, found.fault, found.is_good) == ("FAILED", "no test was collected", False)
    assert report.totals([found]) == "0 passed, 1 failed, 0 skipped"


def test_a_file_that_cannot_be_imported_is_a_failure() -> None:
    found = outcome("import nowhere\n")
    assert (found.word, found.is_good, found.passed) == ("FAILED", False, 0)


def test_unknown_pytest_option_is_a_failure() -> None:
    Path("test_it.py").write_text(TESTS)
    assert running.run(["test_it.py"], ["--no-such-option"], call=call).fault == "pytest ended with 4"


def test_skipped_test_is_reported_with_its_reason() -> None:
    found = outcome(TESTS.replace("assert was_there", "pytest.skip('only root')"))
    assert found.skipped == ("only root",)
    assert "  1 skipped: only root" in report.lines("some", found)


def test_background_builds_finish_or_are_killed_with_the_run() -> None:
    Path("quick.py").write_text("open('quick', 'w').close()")
    Path("slow.py").write_text("import time\nopen('slow', 'w').close()\ntime.sleep(600)\nopen('late', 'w').close()")
    with builds.in_background([suite(builds=("quick", "slow"))]):
        wait_for(Path("slow").exists, "the second module runs")
    assert (Path("quick").exists(), Path("late").exists()) == (True, False)


def test_a_build_that_fails_is_named_and_the_others_are_built(capfd: pytest.CaptureFixture[str]) -> None:
    Path("away.py").write_text("import sys\nsys.exit('no network')")
    Path("there.py").write_text("open('there', 'w').close()")
    assert builds.build(("away", "there")) == 1
    assert Path("there").exists()
    assert "not built: away" in capfd.readouterr().err


def test_the_log_of_builds_is_shown_when_one_fails(capfd: pytest.CaptureFixture[str]) -> None:
    Path("away.py").write_text("import sys\nsys.exit('no network')")
    with builds.in_background([suite(builds=("away",))]):
        wait_for(lambda: "not built: away" in builds.LOG.read_text(), "the build fails")
    assert "no network" in capfd.readouterr().out


def test_a_run_inside_of_a_run_does_not_take_its_log(capfd: pytest.CaptureFixture[str]) -> None:
    Path("away.py").write_text("import sys\nsys.exit('no network')")
    with builds.in_background([suite(builds=("away",))]):
        wait_for(lambda: "not built: away" in builds.LOG.read_text(), "the build fails")
        with builds.in_background([suite(builds=("quick",))]):
            pass
    assert "no network" in capfd.readouterr().out


def suite(**more: Any) -> Suite:
    return Suite(**{"name": "some", "title": "some", "folders": (), "tools": {}, **more})


def test_suites_side_by_side_have_their_logs_in_files_and_all_of_them_a_result(capfd: pytest.CaptureFixture[str]) -> None:
    Path("test_good.py").write_text("def test_good():\n    pass\n")
    Path("test_wrong.py").write_text(WRONG)
    good = suite(name="good", folders=("test_good.py",))
    found = lanes.run([good, suite(name="wrong", folders=("test_wrong.py",))], ())
    assert {name: outcome.word for name, outcome in found.items()} == {"good": "passed", "wrong": "FAILED"}
    assert "test_wrong.py::test_wrong" in (lanes.LOGS / "wrong.log").read_text()
    assert "--- good: passed" in capfd.readouterr().out


@pytest.mark.parametrize(("recipe", "word", "code"), [("@echo clean", "passed", 0), ("@echo E501; exit 1", "FAILED", 1)])
def test_lint_failure_fails_the_run(
    recipe: str,
    word: str,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    Path("Makefile").write_text(f"lint:\n\t{recipe}\n")
    Path("test_good.py").write_text("def test_good():\n    pass\n")
    monkeypatch.setattr(suites, "UNIT", ("test_good.py",))
    monkeypatch.setattr(unit, "_DISTRIBUTION", ())
    found = unit.run(with_lint=True)
    assert (found["lint"].word, found["unit"].word) == (word, "passed")
    assert ("E501" in capfd.readouterr().out) == bool(code)
    assert report.totals(found.values()) == f"1 passed, {code} failed, 0 skipped"
