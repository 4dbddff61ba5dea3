"""`make test` itself: what failed is tried once more, and what passes only then is named with its seed."""

from pathlib import Path

import pytest

from tests import run
from tests.support.waiting import wait_for

TESTS = """
from pathlib import Path
import pytest
pytestmark = pytest.mark.some

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
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    Path("pytest.ini").write_text("[pytest]\nmarkers = some: tests\n")


def outcome(text: str) -> run.Outcome:
    Path("test_it.py").write_text(text)
    return run.run(run.Suite(name="some", marked="some", distribution=(), tools={}))


def test_what_passes_only_at_the_second_try_is_named() -> None:
    found = outcome(TESTS)
    assert (found.word, found.unsteady) == ("UNSTEADY", ("test_it.py::test_unsteady",))


def test_both_tries_have_the_seed_that_is_reported() -> None:
    found = outcome(TESTS + SEEDED)
    assert Path("seeds").read_text().split() == [str(found.seed)] * 2


def test_what_fails_twice_has_failed_and_the_rest_is_named_all_the_same() -> None:
    found = outcome(TESTS + WRONG)
    assert (found.word, found.unsteady) == ("FAILED", ("test_it.py::test_unsteady",))


def test_what_passes_is_run_once() -> None:
    assert outcome(TESTS.replace("assert was_there", "assert not was_there")).word == "passed"


def test_what_is_built_beside_a_suite_is_done_or_ended_with_the_run() -> None:
    Path("quick.py").write_text("open('quick', 'w').close()")
    Path("slow.py").write_text("import time\nopen('slow', 'w').close()\ntime.sleep(600)\nopen('late', 'w').close()")
    with run._building(("quick", "slow")):
        wait_for(Path("slow").exists, "the second module runs")
    assert (Path("quick").exists(), Path("late").exists()) == (True, False)


def test_a_suite_is_left_out_where_a_registry_does_not_give_what_it_runs() -> None:
    Path("there.py").write_text("print('/cache/there')")
    Path("away.py").write_text("import sys\nsys.exit('ERROR: no network\\nERROR: no matching distribution')")
    suite = run.Suite(name="some", marked="some", distribution=(), tools={}, fetched=("there", "away"))
    assert list(run.why_not(suite)) == ["away cannot be fetched: ERROR: no matching distribution"]
