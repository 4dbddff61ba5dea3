"""The runner itself: what failed is tried once more, and what passes only then fails the run and is named with its seed."""

from pathlib import Path

import pytest

from tests.runner import builds, report, running
from tests.runner.suites import Suite
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

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
    Path("test_it.py").write_text(text)
    return running.run(["test_it.py"])


def test_what_passes_only_at_the_second_try_is_named_and_is_no_success() -> None:
    found = outcome(TESTS)
    assert (found.word, found.unsteady, found.is_good) == ("UNSTEADY", ("test_it.py::test_unsteady",), False)
    again = f"  passed only at the second try (--hypothesis-seed={found.seed}): test_it.py::test_unsteady"
    assert again in report.lines("some", found)


def test_both_tries_have_the_seed_that_is_reported() -> None:
    found = outcome(TESTS + SEEDED)
    assert Path("seeds").read_text().split() == [str(found.seed)] * 2


def test_what_fails_twice_has_failed_and_the_rest_is_named_all_the_same() -> None:
    found = outcome(TESTS + WRONG)
    assert (found.word, found.failed, found.unsteady) == ("FAILED", ("test_it.py::test_wrong",), ("test_it.py::test_unsteady",))


def test_what_passes_is_run_once_and_counted() -> None:
    found = outcome(TESTS.replace("assert was_there", "assert not was_there"))
    assert (found.word, found.passed, found.is_good) == ("passed", 2, True)
    assert report.totals([found, found]) == "4 passed, 0 failed, 0 skipped"


def test_a_run_that_tested_nothing_is_a_failure() -> None:
    found = outcome("x = 1\n")
    assert (found.word, found.fault, found.is_good) == ("FAILED", "no test was collected", False)
    assert report.totals([found]) == "0 passed, 1 failed, 0 skipped"


def test_a_file_that_cannot_be_imported_is_a_failure() -> None:
    found = outcome("import nowhere\n")
    assert (found.word, found.is_good, found.passed) == ("FAILED", False, 0)


def test_words_that_pytest_does_not_know_are_a_failure() -> None:
    Path("test_it.py").write_text(TESTS)
    assert running.run(["test_it.py"], ["--no-such-option"]).fault == "pytest ended with 4"


def test_a_skipped_test_is_told_with_its_reason() -> None:
    found = outcome(TESTS.replace("assert was_there", "pytest.skip('only root')"))
    assert found.skipped == ("only root",)
    assert "  1 skipped: only root" in report.lines("some", found)


def test_what_is_built_beside_suites_is_done_or_ended_with_the_run() -> None:
    Path("quick.py").write_text("open('quick', 'w').close()")
    Path("slow.py").write_text("import time\nopen('slow', 'w').close()\ntime.sleep(600)\nopen('late', 'w').close()")
    suite = Suite(name="some", title="some", folders=(), tools={}, builds=("quick", "slow"))
    with builds.in_background([suite]):
        wait_for(Path("slow").exists, "the second module runs")
    assert (Path("quick").exists(), Path("late").exists()) == (True, False)


def test_a_build_that_fails_is_named_and_the_others_are_built(capfd: pytest.CaptureFixture[str]) -> None:
    Path("away.py").write_text("import sys\nsys.exit('no network')")
    Path("there.py").write_text("open('there', 'w').close()")
    assert builds.build(("away", "there")) == 1
    assert Path("there").exists()
    assert "not built: away" in capfd.readouterr().err
