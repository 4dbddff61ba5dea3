"""What the whole suite has: the options `--case` and `--long`, libyaml, and examples without a time limit."""

import gc
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, settings

from tests.support import scale

# Tests read and write YAML by `yaml.safe_load` and `yaml.safe_dump`: libyaml needs a tenth of the time for the same documents.
yaml.SafeLoader = yaml.CSafeLoader  # type: ignore[misc, assignment]
yaml.SafeDumper = yaml.CSafeDumper  # type: ignore[misc, assignment]

# Tests make many objects and few cycles: the collector of garbage took a fifth of their time.
gc.set_threshold(20_000, 20, 20)

# How long an example takes is a matter of what else the machine does. All else is Hypothesis's own choice, on CI and elsewhere.
settings.register_profile("patient", settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--case` beside pytest's own ways to select tests."""
    parser.addoption(
        "--case",
        type=int,
        action="append",
        metavar="NUMBER",
        dest="failure_cases",
        help="run only the tests of this case of docs/failure-cases.md; may be repeated",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="try what `make test` leaves out of each property of which it tries a part, and no other but those of tests/long",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Before any test is imported, since decorators count examples."""
    scale.is_long = config.getoption("--long")
    # xdist gives out files in the order of the collection: where they differ, the suite puts the longest first.
    config.option.loadscopereorder = False


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects the tests that prove none of the wanted cases and, with `--long`, those that would be as in `make test`."""
    cases = set(config.getoption("failure_cases") or ())

    def is_wanted(item: pytest.Item) -> bool:
        return (not cases or not cases.isdisjoint(cases_of(item))) and (not scale.is_long or is_long(item))

    config.hook.pytest_deselected(items=[item for item in items if not is_wanted(item)])
    items[:] = filter(is_wanted, items)


def pytest_collection_finish() -> None:
    """Thousands of collected tests stay until the end: no collection of garbage goes through them again."""
    gc.collect()
    gc.freeze()


def is_long(item: pytest.Item) -> bool:
    """Whether the test is one of tests/long, or tries more with `--long`."""
    name = item.nodeid.split("::")[1].split("[")[0]
    return Path(__file__).with_name("long") in item.path.parents or name in scale.users(item.path)


def cases_of(item: pytest.Item) -> set[int]:
    """The numbers of the failure cases that a test proves."""
    return {number for mark in item.iter_markers("failure_case") for number in mark.args}
