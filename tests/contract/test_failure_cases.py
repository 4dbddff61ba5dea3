"""docs/failure-cases.md: its cases are numbered in order, and each has a test whose marker names it."""

import re

import pytest

from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

UNTESTED = {58}
"""What the runtime does not offer."""


def test_failure_cases_of_the_page_and_the_tests_match() -> None:
    cases = [int(number) for number in re.findall(r"^(\d+)\. ", (ROOT / "docs/failure-cases.md").read_text(), re.MULTILINE)]
    assert cases == list(range(1, len(cases) + 1))
    marks = {
        int(number)
        for path in (ROOT / "tests").rglob("test_*.py")
        for numbers in re.findall(r"^@pytest\.mark\.failure_case\((.*)\)$", path.read_text(), re.MULTILINE)
        for number in numbers.split(",")
    }
    assert marks == set(cases) - UNTESTED


SAMPLE = """
import pytest

@pytest.mark.failure_case(1)
def test_first(): pass

@pytest.mark.failure_case(1, 2)
def test_both(): pass

def test_none(): pass
"""


@pytest.mark.parametrize(
    ("options", "run"),
    [
        ((), 3),
        (("-m", "failure_case"), 2),
        (("--case", "1"), 2),
        (("--case", "2"), 1),
        (("--case", "1", "--case", "2"), 2),
        (("--case", "3"), 0),
    ],
)
def test_the_tests_of_a_case_run_by_its_number(pytester: pytest.Pytester, options: tuple[str, ...], run: int) -> None:
    pytester.makeini("[pytest]\nmarkers = failure_case: tests\n")
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makepyfile(SAMPLE)
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=run, deselected=3 - run)
