"""The objects for Prometheus: what the chart gets, what is beside it, and that nothing is there without the setting."""

from typing import Any

import pytest

from gpushare.render.monitoring.alerts import groups
from gpushare.render.monitoring.artifacts import csv_text
from gpushare.vendors.nvidia import NVIDIA
from tests.compiler.render.compiled import document, files

TEMPLATE = "chart/templates/monitoring/objects.yaml"
OBJECTS = "chart/files/monitoring"


def watched(settings: str) -> dict[str, str]:
    """A bundle with these settings."""
    return files("hpc", platform="{namespaces: [monitoring]}", more=f"  monitoring: {{{settings}}}\n")


def generated(bundle: dict[str, str]) -> set[str]:
    """Its files for monitoring."""
    return {path for path in bundle if "monitoring/" in path}


@pytest.mark.parametrize("settings", ["", "alerts: false, labels: {a: b}"])
def test_no_monitoring_is_generated_without_settings(settings: str) -> None:
    bundle = watched(settings)
    assert generated(bundle) == set()
    assert "## Monitoring" not in bundle["README.md"]


def test_alerts_and_service_monitor_are_generated_together() -> None:
    bundle = watched("serviceMonitor: true, alerts: true, labels: {release: prom}")
    assert generated(bundle) == {
        TEMPLATE,
        f"{OBJECTS}/podmonitor.yaml",
        f"{OBJECTS}/rules.yaml",
        "monitoring/scrape.yaml",
        "monitoring/rules.yaml",
    }
    monitor, rules = document(bundle, f"{OBJECTS}/podmonitor.yaml"), document(bundle, f"{OBJECTS}/rules.yaml")
    assert (monitor["kind"], rules["kind"]) == ("PodMonitor", "PrometheusRule")
    assert monitor["metadata"]["labels"] == rules["metadata"]["labels"] == {"release": "prom"}
    assert rules["spec"] == groups(made_by=[NVIDIA]) == document(bundle, "monitoring/rules.yaml")
    assert "The chart installs PodMonitor, PrometheusRule." in bundle["README.md"]


def test_alerts_and_service_monitor_are_generated_separately() -> None:
    assert generated(watched("alerts: true")) == {TEMPLATE, f"{OBJECTS}/rules.yaml", "monitoring/rules.yaml"}
    assert generated(watched("serviceMonitor: true")) == {TEMPLATE, f"{OBJECTS}/podmonitor.yaml", "monitoring/scrape.yaml"}


def test_the_dashboard_is_a_config_map_and_a_file() -> None:
    bundle = watched("dashboard: true, operator: false, labels: {team: gpu}")
    assert generated(bundle) == {TEMPLATE, f"{OBJECTS}/dashboard.yaml", "monitoring/dashboard.json"}
    board = document(bundle, f"{OBJECTS}/dashboard.yaml")
    assert (board["apiVersion"], board["kind"], board["metadata"]["name"]) == ("v1", "ConfigMap", "gpushare-dashboard")
    assert board["metadata"]["labels"] == {"team": "gpu", "grafana_dashboard": "1"}
    assert board["data"] == {"gpushare.json": bundle["monitoring/dashboard.json"]}
    assert "operator must be there" not in bundle["README.md"]
    assert "has no effect" not in bundle["README.md"]


def exporter(bundle: dict[str, str]) -> dict[str, Any]:
    """The operator's values for dcgm-exporter."""
    found: dict[str, Any] = document(bundle, "gpu-operator/values.yaml").get("dcgmExporter", {})
    return found


def test_the_dashboard_brings_its_counters_to_the_exporter_of_gpu_operator() -> None:
    bundle = watched("dashboard: true")
    assert exporter(bundle)["config"] == {"create": True, "name": "gpushare-dcgm-metrics", "data": csv_text()}
    assert "set the counters of dcgm-exporter" in bundle["README.md"]
    assert "config" not in exporter(watched("alerts: true, serviceMonitor: true"))


@pytest.mark.parametrize(
    "values",
    [
        "{dcgmExporter: {config: {name: own}}}",
        "{dcgmExporter: {enabled: false}}",
    ],
)
def test_counters_of_the_intents_own_values_are_kept(values: str) -> None:
    bundle = files("hpc", platform=f"{{values: {values}}}", more="  monitoring: {dashboard: true}\n")
    assert exporter(bundle).get("config", {}).keys() <= {"name"}
    assert bundle["monitoring/dcgm-metrics.csv"] == csv_text()


@pytest.mark.parametrize("stack", ["device-plugin", "existing"])
def test_elsewhere_the_counters_are_a_file(stack: str) -> None:
    bundle = files("notebooks", platform=f"{{stack: {stack}}}", more="  monitoring: {dashboard: true}\n")
    assert bundle["monitoring/dcgm-metrics.csv"] == csv_text()
    assert "need the counters of `monitoring/dcgm-metrics.csv`" in bundle["README.md"]
    assert "dcgm-metrics" not in bundle.get("device-plugin/values.yaml", "")


def test_without_the_operator_only_plain_files() -> None:
    bundle = watched("alerts: true, serviceMonitor: true, operator: false")
    assert generated(bundle) == {"monitoring/scrape.yaml", "monitoring/rules.yaml"}
    assert "The chart installs" not in bundle["README.md"]
    assert "operator must be there" not in bundle["README.md"]


def test_both_ways_of_scraping_select_the_same_pods_and_set_the_same_labels() -> None:
    bundle = watched("serviceMonitor: true")
    spec = document(bundle, f"{OBJECTS}/podmonitor.yaml")["spec"]
    [plain] = document(bundle, "monitoring/scrape.yaml")["scrape_configs"]
    [discovery] = plain["kubernetes_sd_configs"]
    selected = dict(pair.split("=") for pair in discovery["selectors"][0]["label"].split(","))
    assert selected == spec["selector"]["matchLabels"]
    assert discovery["namespaces"] == {"names": ["gpu-system"]}
    [endpoint] = spec["podMetricsEndpoints"]
    assert [one["targetLabel"] for one in endpoint["relabelings"]] == ["pool", "node"]
    assert [one["target_label"] for one in plain["relabel_configs"] if "target_label" in one] == ["pool", "node"]
    assert endpoint["honorLabels"] is plain["honor_labels"] is True


def test_an_address_of_runbooks_is_in_every_alert() -> None:
    rules = document(watched("alerts: true, runbooks: 'https://docs.example.org/a/'"), "monitoring/rules.yaml")
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if "alert" in rule]
    assert alerts
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"https://docs.example.org/a/#{rule['alert'].lower()}"
