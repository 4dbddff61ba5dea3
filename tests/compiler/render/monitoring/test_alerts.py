"""Every alert fires when it must and is silent when it must be, by Prometheus' own evaluation; and its metrics exist."""

import json
import re
from typing import Any

import pytest

from gpushare.render.monitoring.alerts import ALERTS, RECORDINGS, groups
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.enforce.metrics import EnforcementMetrics
from gpushare_node.reporting.metrics import Registry
from tests.compiler.render.monitoring.series import CASES
from tests.support.paths import ROOT

UPSTREAM = {
    # kube-state-metrics v2: docs/metrics/workload/{daemonset,pod}-metrics.md, docs/metrics/cluster/node-metrics.md,
    # docs/metrics/policy/resourcequota-metrics.md
    "kube_daemonset_status_desired_number_scheduled",
    "kube_daemonset_status_number_ready",
    "kube_node_status_allocatable",
    "kube_node_status_condition",
    "kube_pod_container_resource_requests",
    "kube_pod_container_status_restarts_total",
    "kube_pod_info",
    "kube_pod_status_phase",
    "kube_pod_status_ready",
    "kube_resourcequota",
    # dcgm-exporter: etc/default-counters.csv
    "DCGM_FI_DEV_ROW_REMAP_FAILURE",
    # kube-apiserver: staging/src/k8s.io/apiserver/pkg/admission/plugin/policy/validating/metrics/metrics.go
    "apiserver_validating_admission_policy_check_total",
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
    used = set(re.findall(r"\b(?:gpushare_\w+|kube_\w+|DCGM_\w+|apiserver_\w+)\b", unquoted))
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
    """The reasons that the container `enforce`, which observes too, can serve; while the node waits, it has not started."""
    folder = ROOT / "node-runtime/gpushare_node"
    parts = (*(folder / "enforce").glob("*.py"), *(folder / "partition").glob("*.py"), folder / "cli" / "observing.py")
    names = (name for path in parts for name in re.findall(r"ConditionReason\.([A-Z_]+)", path.read_text()))
    return {ConditionReason[name].word for name in names}


def test_alerts_and_their_cases_use_no_reason_that_is_never_served() -> None:
    in_rules = {
        word
        for alert in ALERTS
        for text in re.findall(r'reason=~?"([^"]*)"', alert.expr)
        if "condition" in alert.expr
        for word in text.split("|")
    }
    in_cases = {
        word
        for _, causes, _, silent in CASES.values()
        for series in (causes, *silent)
        for name in series
        for word in re.findall(r'gpushare_node_condition{.*reason="([^"]*)"', name)
    }
    assert in_rules
    assert in_cases
    assert in_rules | in_cases <= served()
    assert "GPUBusy" not in served()


def test_every_alert_has_its_cases() -> None:
    assert CASES.keys() == {alert.name for alert in ALERTS}
    assert len({one.name for one in ALERTS}) == len(ALERTS)


def test_runbook_url_is_set_only_if_configured() -> None:
    assert "runbook_url" not in json.dumps(groups())
    named = groups("https://docs.example.org/alerts/")["groups"][1]["rules"]
    assert named[0]["annotations"]["runbook_url"] == "https://docs.example.org/alerts/#gpusharenodenotready"
