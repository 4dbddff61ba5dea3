"""docs/failure-cases.md is whole: each of its cases has a test whose marker names it, or a reason why it has none."""

import re

import pytest

from tests.support.paths import ROOT

pytest_plugins = ["pytester"]

UNTESTED = {58}

ROWS = {
    int(number): tests
    for number, tests in re.findall(
        r"^\| (\d+) \| .+? \| (.*?) ?\|$", (ROOT / "docs/failure-cases.md").read_text(), re.MULTILINE)
}


def test_the_page_has_every_case_once_and_in_order() -> None:
    assert list(ROWS) == list(range(1, len(ROWS) + 1))
    assert len(ROWS) > 75


def test_every_case_has_a_test_or_a_reason() -> None:
    assert {number for number, tests in ROWS.items() if "`test_" not in tests} == UNTESTED
    assert all(ROWS[number].startswith("none: ") for number in UNTESTED)


def test_no_test_names_a_case_that_does_not_exist() -> None:
    for path in (ROOT / "tests").rglob("test_*.py"):
        for numbers in re.findall(r"^@pytest\.mark\.failure_case\((.*)\)$", path.read_text(), re.MULTILINE):
            assert {int(number) for number in numbers.split(",")} <= set(ROWS), f"{path.name}: {numbers}"


SAMPLE = """
import pytest

@pytest.mark.failure_case(1)
def test_first(): pass

@pytest.mark.failure_case(1, 2)
def test_both(): pass

def test_none(): pass
"""


@pytest.mark.parametrize(("options", "run"), [
    ((), 3), (("-m", "failure_case"), 2), (("--case", "1"), 2), (("--case", "2"), 1), (("--case", "1", "--case", "2"), 2),
    (("--case", "3"), 0),
])
def test_the_tests_of_a_case_run_by_its_number(pytester: pytest.Pytester, options: tuple[str, ...], run: int) -> None:
    pytester.makeini("[pytest]\nmarkers = failure_case: tests\n")
    pytester.makeconftest((ROOT / "tests/conftest.py").read_text())
    pytester.makepyfile(SAMPLE)
    pytester.runpytest_inprocess(*options).assert_outcomes(passed=run, deselected=3 - run)
