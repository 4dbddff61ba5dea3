"""Intents compiled and compared, as `gpushare plan` does it."""

from collections.abc import Mapping
from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.compare import compare, sides
from gpushare.compare.changes import Comparison
from gpushare.compare.sides import Side
from gpushare.facts.catalog.cards import Catalog
from gpushare.pipeline import Compilation
from gpushare.report.comparison import report
from gpushare.report.model import Report


def compiled(document: Mapping[str, Any], previous: Lock = lock.EMPTY) -> Compilation:
    """The bundle of an intent without errors."""
    found = pipeline.compile_intent(yaml.safe_dump(document, sort_keys=False).encode(), "intent.yaml", previous)
    assert found.artifacts, found.findings
    return found


def texts(side: Compilation) -> dict[str, str]:
    """The files of a bundle."""
    return {file.path: file.text for file in side.artifacts}


def comparison(old: Compilation, new: Compilation, now: float | None = None) -> Comparison:
    """What changes from one bundle to the other."""
    return compare(*_sides(old, new), Catalog().geometry, (texts(old), texts(new)), now)


def report_of(old: Compilation, new: Compilation, now: float | None = None) -> Report:
    """The same as the report of `gpushare plan`."""
    return report(comparison(old, new, now), _sides(old, new), Catalog())


def _sides(old: Compilation, new: Compilation) -> tuple[Side, Side]:
    assert old.plan is not None
    assert new.plan is not None
    return sides.of_plan(old.plan), sides.of_plan(new.plan)
