"""Intents compiled and compared, as `gpushare plan` does it."""

from collections.abc import Mapping
from typing import Any

import yaml

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.bundle.lock import Lock
from gpushare.compare import compare, sides
from gpushare.compare.changes import Comparison
from gpushare.facts.catalog import cards
from gpushare.pipeline import Compilation


def compiled(document: Mapping[str, Any], previous: Lock = lock.EMPTY) -> Compilation:
    """The bundle of an intent without errors."""
    found = pipeline.compile_intent(yaml.safe_dump(document, sort_keys=False).encode(), "intent.yaml", previous)
    assert found.artifacts, found.findings
    return found


def texts(side: Compilation) -> dict[str, str]:
    """The files of a bundle."""
    return {file.path: file.text for file in side.artifacts}


def comparison(old: Compilation, new: Compilation) -> Comparison:
    """What changes from one bundle to the other."""
    assert old.plan is not None
    assert new.plan is not None
    return compare(
        sides.of_plan(old.plan), sides.of_plan(new.plan), lambda card: cards.load(card).mig, (texts(old), texts(new))
    )
