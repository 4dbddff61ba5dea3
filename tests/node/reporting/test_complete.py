"""Nothing is declared and then forgotten: a module sets each reason and each metric, and a test expects each reason."""

import re
from collections.abc import Iterable

import pytest

from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.gpus import view
from gpushare_node.reporting.metrics import Counter, Gauge, Histogram, Registry
from tests.support.paths import ROOT

SOURCES = [path.read_text() for path in (ROOT / "node-runtime/gpushare_node").rglob("*.py")]
TESTS = [path.read_text() for path in (ROOT / "tests").rglob("test_*.py")]
METRICS = [name for name, one in vars(EnforcementMetrics(Registry())).items() if isinstance(one, Counter | Gauge | Histogram)]
"""Those that a module must set; a metric that is gathered has its function."""


def is_in(texts: Iterable[str], pattern: str) -> bool:
    return any(re.search(pattern, text) for text in texts)


@pytest.mark.parametrize("reason", ConditionReason, ids=lambda reason: reason.word)
def test_every_reason_is_set_somewhere(reason: ConditionReason) -> None:
    assert is_in(SOURCES, rf"\bConditionReason\.{reason.name}\b"), f"no module sets {reason.word}"


@pytest.mark.parametrize("reason", ConditionReason, ids=lambda reason: reason.word)
def test_every_reason_is_expected_by_a_test(reason: ConditionReason) -> None:
    assert is_in(TESTS, rf"Reason\.{reason.name}\b|\b{reason.word}\b"), f"no test expects {reason.word}"


def test_every_reason_of_an_unfit_gpu_has_a_rank() -> None:
    folder = ROOT / "node-runtime/gpushare_node/partition"
    named = {name for path in folder.glob("*.py") for name in re.findall(r"\bConditionReason\.([A-Z_]+)", path.read_text())}
    assert named == {reason.name for reason in view._FAULTS_WORST_FIRST}


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_is_set_somewhere(name: str) -> None:
    assert is_in(SOURCES, rf"metrics\.{name}\b|\bself\.{name}\.(add|observe|replace|set)\("), f"no module sets metrics.{name}"
