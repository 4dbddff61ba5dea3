"""Rules on `monitoring`: code, place and sentence."""

import json

import pytest

from tests.compiler.rules.intents import codes, one

REACH = "{namespaces: [monitoring]}"


def test_valid_monitoring_has_no_findings() -> None:
    text = "{serviceMonitor: true, alerts: true, labels: {release: '1e3'}, runbooks: 'https://docs.example.org/alerts/'}"
    assert codes(monitoring=text, platform=REACH) == []
    assert codes(monitoring="{alerts: true, operator: false}") == []


def test_prometheus_without_metrics_access_is_reported() -> None:
    path, _, message = one("GS741", monitoring="{serviceMonitor: true}")
    assert path == "/spec/monitoring/serviceMonitor"
    assert "only pods in kube-system and gpu-system" in message
    assert codes(monitoring="{alerts: true}") == []


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("a b", "x", "is not a valid label key"),
        ("release", "a b", "is not a valid label value"),
        ("release", "x" * 64, "is not a valid label value"),
        ("app.kubernetes.io/name", "x", "belongs to the chart"),
        ("gpushare.dev/cluster", "x", "belongs to the chart"),
        ("release", "{{ fail }}", "is not a valid label value"),
    ],
)
def test_invalid_object_labels_are_reported(key: str, value: str, words: str) -> None:
    path, _, message = one("GS742", monitoring=json.dumps({"alerts": True, "labels": {key: value}}))
    assert path == f"/spec/monitoring/labels/{key.replace('/', '~1')}"
    assert words in message


@pytest.mark.parametrize("text", ["{labels: {release: x}}", "{alerts: false}", "{operator: true}"])
def test_ineffective_monitoring_settings_are_reported(text: str) -> None:
    assert one("GS743", monitoring=text)[0] == "/spec/monitoring"


def test_empty_monitoring_section_has_no_findings() -> None:
    assert codes(monitoring="{}") == []


@pytest.mark.parametrize(
    "address",
    ["docs/alerts.md", "ftp://a/b", "https://a/b#c", "https://a/{{ .Values }}", "https://ada:secret@a/b", "", "https://a/b\n"],
)
def test_invalid_runbook_address_is_reported(address: str) -> None:
    assert one("GS744", monitoring=json.dumps({"alerts": True, "runbooks": address}))[0] == "/spec/monitoring/runbooks"
