"""Every alert fires when it must and is silent when it must be, by Prometheus' own evaluation; and its metrics exist."""

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import emit
from gpushare.monitoring.alerts import ALERTS, RECORDINGS, groups
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.partition.fitness import UnfitReason
from gpushare_node.reporting.metrics import Registry
from gpushare_node.reporting.reasons import ConditionReason
from tests.compiler.monitoring.series import CASES, STEPS, Series
from tests.support.paths import ROOT

UPSTREAM = {
    # kube-state-metrics v2: docs/metrics/workload/{daemonset,pod}-metrics.md, docs/metrics/cluster/node-metrics.md,
    # docs/metrics/policy/resourcequota-metrics.md
    "kube_daemonset_status_desired_number_scheduled", "kube_daemonset_status_number_ready", "kube_node_status_allocatable",
    "kube_node_status_condition", "kube_pod_container_resource_requests", "kube_pod_container_status_restarts_total",
    "kube_pod_info", "kube_pod_status_phase", "kube_pod_status_ready",
    "kube_resourcequota",
    # dcgm-exporter: etc/default-counters.csv
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
}
EXPRESSIONS = {one.name: one.expr for one in (*RECORDINGS, *ALERTS)}


def runtime() -> dict[str, tuple[str, ...]]:
    """The metrics of the node runtime with their labels."""
    registry = Registry()
    EnforcementMetrics(registry)
    return {family.name: tuple(family.labels) for family in registry}


@pytest.mark.parametrize("name", EXPRESSIONS)
def test_every_metric_of_a_rule_exists(name: str) -> None:
    unquoted = re.sub(r'"[^"]*"', "", EXPRESSIONS[name])
    used = set(re.findall(r"\b(?:gpushare_\w+|kube_\w+|DCGM_\w+)\b", unquoted))
    assert used or "gpushare:" in unquoted
    assert used <= runtime().keys() | UPSTREAM
    assert set(re.findall(r"\bgpushare:[\w:]+", unquoted)) <= {one.name for one in RECORDINGS}


def test_every_upstream_metric_of_the_list_is_used() -> None:
    assert all(any(metric in text for text in EXPRESSIONS.values()) for metric in UPSTREAM)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_the_labels_and_reasons_that_an_alert_selects_exist(alert: Any) -> None:
    metrics, words = runtime(), {reason.word for reason in ConditionReason}
    for metric, selectors in re.findall(r"\b(gpushare_\w+)\{([^}]*)\}", alert.expr):
        for label, value in re.findall(r'(\w+)[=!]~?"([^"]*)"', selectors):
            assert label in metrics[metric]
            assert label != "reason" or set(value.split("|")) <= words


def served() -> set[str]:
    """The reasons that the container `enforce` can serve; while the node waits, it has not started."""
    folder = ROOT / "node-runtime/gpushare_node"
    texts = [path.read_text() for path in (folder / "enforce").glob("*.py")]
    found = {ConditionReason[name].word for text in texts for name in re.findall(r"ConditionReason\.([A-Z_]+)", text)}
    return found | {unfit.value for unfit in UnfitReason}


def test_alerts_and_their_cases_use_no_reason_that_is_never_served() -> None:
    in_rules = {word for alert in ALERTS for text in re.findall(r'reason=~?"([^"]*)"', alert.expr) if "condition" in alert.expr
                for word in text.split("|")}
    in_cases = {word for _, causes, _, silent in CASES.values() for series in (causes, *silent) for name in series
                for word in re.findall(r'gpushare_node_condition{.*reason="([^"]*)"', name)}
    assert in_rules
    assert in_cases
    assert in_rules | in_cases <= served()
    assert "GPUBusy" not in served()


def test_every_alert_has_its_cases() -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}
    assert len({one.name for one in ALERTS}) == len(ALERTS)


def test_runbooks_are_named_only_where_there_is_a_page() -> None:
    assert "runbook_url" not in json.dumps(groups())
    named = groups("https://docs.example.org/alerts/")["groups"][1]["rules"]
    assert named[0]["annotations"]["runbook_url"] == "https://docs.example.org/alerts/#gpusharenodenotready"


def evaluate(folder: Path, tests: list[dict[str, Any]]) -> subprocess.CompletedProcess[str]:
    """What promtool says of the rules with these tests."""
    (folder / "rules.yaml").write_text(emit.yaml_text(groups()))
    document = {"rule_files": ["rules.yaml"], "evaluation_interval": tests[0]["interval"], "tests": tests}
    (folder / "tests.yaml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", "tests.yaml"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def count(name: str, series: Series, at: str, expected: int) -> dict[str, Any]:
    """A test that so many alerts of this name fire at that time."""
    samples = [{"value": expected, "labels": "{}"}] if expected else []
    query = {"expr": f'count(ALERTS{{alertname="{name}",alertstate="firing"}})', "eval_time": at, "exp_samples": samples}
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    return {"interval": STEPS.get(name, "1m"), "input_series": inputs, "promql_expr_test": [query]}


@pytest.mark.windows
def test_promtool_accepts_the_rules(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_text(emit.yaml_text(groups("https://docs.example.org/alerts/")))
    command = ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "rules.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.windows
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


@pytest.mark.windows
@pytest.mark.parametrize("name", CASES)
def test_an_alert_fires_with_its_cause(name: str, tmp_path: Path) -> None:
    at, series, _, _ = CASES[name]
    done = evaluate(tmp_path, [count(name, series, at, 1)])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.windows
@pytest.mark.parametrize("name", CASES)
def test_an_alert_is_silent_without_it(name: str, tmp_path: Path) -> None:
    at, _, _, silent = CASES[name]
    done = evaluate(tmp_path, [count(name, series, at, 0) for series in silent])
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.windows
@pytest.mark.parametrize("name", CASES)
def test_a_summary_says_what_it_is_about(name: str, tmp_path: Path) -> None:
    at, series, words, _ = CASES[name]
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    # promtool prints what it got where nothing is expected.
    wanted = {"eval_time": at, "alertname": name, "exp_alerts": []}
    asked = {"interval": STEPS.get(name, "1m"), "input_series": inputs, "alert_rule_test": [wanted]}
    done = evaluate(tmp_path, [asked])
    assert done.returncode != 0
    assert words in done.stdout + done.stderr
    assert "<no value>" not in done.stdout + done.stderr
