"""The dashboard: Grafana's own types read its JSON, and Prometheus reads every query."""

import json
import re
from typing import Any

from gpushare.core import emit
from gpushare.render.monitoring.alerts import RECORDINGS
from gpushare.render.monitoring.artifacts import COUNTERS, csv_text
from gpushare.render.monitoring.dashboard import PANELS, document
from tests.compiler.render.monitoring.test_alerts import UPSTREAM, runtime

KNOWN = UPSTREAM | {field for field, _, _ in COUNTERS}
QUERIES = [query for panel in PANELS for query in panel.queries]
BOARD: dict[str, Any] = json.loads(emit.json_text(document()))


def test_every_metric_of_a_query_exists() -> None:
    metrics = runtime()
    known = metrics.keys() | KNOWN | {one.name for one in RECORDINGS}
    for query in QUERIES:
        used = set(re.findall(r"\b(?:gpushare[_:][\w:]+|kube_\w+|DCGM_\w+)", query.expr))
        assert used, query
        assert used <= known, query


def test_a_legend_has_only_labels_that_its_series_have() -> None:
    targets = {"node", "pool", "resource", "namespace", "gpu"}
    for query in QUERIES:
        of_runtime = {label for metric, labels in runtime().items() if metric in query.expr for label in labels}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= targets | of_runtime, query


def test_panels_have_unique_ids_and_positions_and_the_chosen_data_source() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(PANELS)
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels)
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in panels)
    assert {panel["type"] for panel in panels} == {"timeseries"}
    sources = [one["datasource"]["uid"] for panel in panels for one in (panel, *panel["targets"])]
    assert set(sources) == {"${datasource}"}
    assert BOARD["uid"]
    assert BOARD["schemaVersion"] >= 36


def test_every_variable_is_declared() -> None:
    declared = {one["name"] for one in BOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?([a-z]+)", " ".join(query.expr for query in QUERIES))) | {"datasource"}
    assert used == declared


def test_hardware_panel_shows_only_the_selected_pools() -> None:
    of_hardware = [query for query in QUERIES if "DCGM_" in query.expr]
    assert all('gpushare_gpu_memory_total_bytes{pool=~"$pool"}' in query.expr for query in of_hardware)
    assert all("{{node}}" in query.legend and "{{gpu}}" in query.legend for query in of_hardware)


def test_the_types_of_core_the_links_and_the_clocks_are_shown() -> None:
    shown = {word for query in QUERIES for word in re.findall(r"DCGM_\w+", query.expr)}
    assert shown >= {
        *(f"DCGM_FI_PROF_{part}_ACTIVE" for part in ("SM", "PIPE_TENSOR", "PIPE_FP64", "PIPE_FP32", "PIPE_FP16")),
        *(f"DCGM_FI_PROF_{link}_{way}_BYTES" for link in ("NVLINK", "PCIE") for way in ("TX", "RX")),
        "DCGM_FI_DEV_SM_CLOCK",
        "DCGM_FI_DEV_MEM_CLOCK",
    }


def test_the_exporter_reads_every_line_of_its_counters() -> None:
    rows = [line.split(", ") for line in csv_text().splitlines()]
    assert {len(row) for row in rows} == {3}
    assert {row[1] for row in rows} == {"gauge", "counter", "label"}
    assert len({row[0] for row in rows}) == len(rows)


def test_the_release_has_the_namespace_of_the_intent() -> None:
    text = json.dumps(document("elsewhere"))
    assert "elsewhere" in text
    assert "gpu-system" not in text
