"""Every alert fires when it must and is silent when it must be, by Prometheus' own evaluation."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import emit
from gpushare.render.monitoring.alerts import groups
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from tests.compiler.render.monitoring.series import CASES, STEPS, Series
from tests.e2e.pages.promtool import evaluate


def count(name: str, series: Series, at: str, expected: int) -> dict[str, Any]:
    """A test that so many alerts of this name fire at that time."""
    samples = [{"value": expected, "labels": "{}"}] if expected else []
    query = {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": at, "exp_samples": samples}
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    return {"interval": STEPS.get(name, "1m"), "input_series": inputs, "promql_expr_test": [query]}


def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(emit.yaml_text(groups("https://docs.example.org/alerts/")))
    command = ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_what_the_runtime_exposes() -> None:
    registry = Registry()
    figures = EnforcementMetrics(registry)
    figures.kills.add("KILL", "gone", "over-cap")
    figures.ready.replace([(("Ready",), 1)])
    figures.cycle_seconds.observe(0.1)
    page = registry.text()
    assert "gpushare_kills_total{" in page
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_with_its_cause(name: str, tmp_path: Path) -> None:
    at, series, _, _ = CASES[name]
    done = evaluate(tmp_path, [count(name, series, at, 1)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_alert_is_silent_without_its_cause(name: str, tmp_path: Path) -> None:
    at, _, _, silent = CASES[name]
    done = evaluate(tmp_path, [count(name, series, at, 0) for series in silent])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_alert_summary_names_its_subject(name: str, tmp_path: Path) -> None:
    at, series, words, _ = CASES[name]
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    # promtool prints what it got where nothing is expected.
    wanted = {"eval_time": at, "alertname": name, "exp_alerts": []}
    asked = {"interval": STEPS.get(name, "1m"), "input_series": inputs, "alert_rule_test": [wanted]}
    done = evaluate(tmp_path, [asked])
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert "<no value>" not in done.stdout + done.stderr
