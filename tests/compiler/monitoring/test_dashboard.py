"""The dashboard: Grafana's own types read its JSON, and Prometheus reads every query."""

import copy
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import emit
from gpushare.monitoring.alerts import RECORDINGS
from gpushare.monitoring.dashboard import PANELS, document
from tests.compiler.monitoring import grafana
from tests.compiler.monitoring.test_alerts import runtime

UPSTREAM = {
    # dcgm-exporter: etc/default-counters.csv
    "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP",
}
QUERIES = [query for panel in PANELS for query in panel.queries]
BOARD: dict[str, Any] = json.loads(emit.json_text(document()))


def test_every_metric_of_a_query_exists() -> None:
    metrics = runtime()
    known = metrics.keys() | UPSTREAM | {one.name for one in RECORDINGS}
    for query in QUERIES:
        used = set(re.findall(r"\b(?:gpushare[_:][\w:]+|DCGM_\w+)", query.expr))
        assert used, query
        assert used <= known, query


def test_a_legend_has_only_labels_that_its_series_have() -> None:
    targets = {"node", "pool", "resource", "UUID"}
    for query in QUERIES:
        of_runtime = {label for metric, labels in runtime().items() if metric in query.expr for label in labels}
        assert set(re.findall(r"{{(\w+)}}", query.legend)) <= targets | of_runtime, query


def test_panels_have_ids_and_places_of_their_own_and_the_chosen_data_source() -> None:
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


@pytest.mark.windows
def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query.expr.replace("$pool", ".*")} for number, query in enumerate(QUERIES)]
    (tmp_path / "queries.yaml").write_text(emit.yaml_text({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "queries.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.windows
@pytest.mark.judges
def test_grafanas_types_accept_the_dashboard() -> None:
    assert grafana.refusal(json.dumps(BOARD)) == ""


DAMAGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "templating: required field is missing": lambda board: board.pop("templating"),
    "annotations: required field is missing": lambda board: board.pop("annotations"),
    "schemaVersion: json: cannot unmarshal string": lambda board: board.update(schemaVersion="39"),
    "unexpected field 'titel'": lambda board: board["panels"][0].update(titel="Shares"),
    "discriminator field 'type' not found": lambda board: board["panels"][0].pop("type"),
    "gridPos.w: must be <= 24": lambda board: board["panels"][0]["gridPos"].update(w=25),
    "expr: required field is missing": lambda board: board["panels"][0]["targets"][0].pop("expr"),
    "unexpected field 'legend'": lambda board: board["panels"][0]["targets"][0].update(legend="{{pool}}"),
    "unexpected field 'lineWidht'": lambda board: board["panels"][0]["fieldConfig"]["defaults"].update(custom={"lineWidht": 1}),
    "unexpected field 'include'": lambda board: board["templating"]["list"][1].update(include=True),
}


@pytest.mark.windows
@pytest.mark.judges
@pytest.mark.parametrize("complaint", DAMAGES)
def test_grafanas_types_refuse_a_damaged_dashboard(complaint: str) -> None:
    damaged = copy.deepcopy(BOARD)
    DAMAGES[complaint](damaged)
    assert complaint in grafana.refusal(json.dumps(damaged))
