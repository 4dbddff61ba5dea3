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
from gpushare.monitoring.counters import COUNTERS, csv_text
from gpushare.monitoring.dashboard import PANELS, document
from tests.compiler.monitoring import grafana
from tests.compiler.monitoring.series import Series
from tests.compiler.monitoring.test_alerts import evaluate, runtime

UPSTREAM = {
    # kube-state-metrics v2: docs/metrics/cluster/node-metrics.md, docs/metrics/workload/pod-metrics.md
    "kube_node_status_condition", "kube_pod_info",
    *(field for field, _, _ in COUNTERS),
}
QUERIES = [query for panel in PANELS for query in panel.queries]
BOARD: dict[str, Any] = json.loads(emit.json_text(document()))


def test_every_metric_of_a_query_exists() -> None:
    metrics = runtime()
    known = metrics.keys() | UPSTREAM | {one.name for one in RECORDINGS}
    for query in QUERIES:
        used = set(re.findall(r"\b(?:gpushare[_:][\w:]+|kube_\w+|DCGM_\w+)", query.expr))
        assert used, query
        assert used <= known, query


def test_a_legend_has_only_labels_that_its_series_have() -> None:
    targets = {"node", "pool", "resource", "namespace", "gpu"}
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


def test_a_panel_on_the_hardware_shows_the_chosen_pools_alone() -> None:
    of_hardware = [query for query in QUERIES if "DCGM_" in query.expr]
    assert all('gpushare_gpu_memory_total_bytes{pool=~"$pool"}' in query.expr for query in of_hardware)
    assert all("{{node}}" in query.legend and "{{gpu}}" in query.legend for query in of_hardware)


def test_the_types_of_core_the_links_and_the_clocks_are_shown() -> None:
    shown = {word for query in QUERIES for word in re.findall(r"DCGM_\w+", query.expr)}
    assert shown >= {
        *(f"DCGM_FI_PROF_{part}_ACTIVE" for part in ("SM", "PIPE_TENSOR", "PIPE_FP64", "PIPE_FP32", "PIPE_FP16")),
        *(f"DCGM_FI_PROF_{link}_{way}_BYTES" for link in ("NVLINK", "PCIE") for way in ("TX", "RX")),
        "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_MEM_CLOCK",
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


TOTAL = "gpushare_gpu_memory_total_bytes"
HERE, THERE = 'node="n1",pool="notebooks"', 'node="n2",pool="training"'
OURS = 'namespace="gpu-system",created_by_kind="DaemonSet",created_by_name="gpushare-'
CONDITION = 'kube_node_status_condition{condition="GPUShareReady",status="false",node='
GPUS = {
    f'{TOTAL}{{{HERE},gpu="GPU-1"}}': "1000x9", f'{TOTAL}{{{THERE},gpu="GPU-2"}}': "2000x9",
    f'{TOTAL}{{{THERE},gpu="MIG-1"}}': "500x9",
}


def of_dcgm(counter: str) -> Series:
    """Two pods share GPU-1, GPU-2 has two instances, and no runtime knows GPU-3."""
    return GPUS | {
        f'{counter}{{UUID="GPU-1",gpu="0",Hostname="n1"}}': "40x9",
        f'{counter}{{UUID="GPU-1",gpu="0",Hostname="n1",exported_pod="a",vgpu="0"}}': "10x9",
        f'{counter}{{UUID="GPU-2",gpu="3",hostname="n2",GPU_I_ID="1"}}': "7x9",
        f'{counter}{{UUID="GPU-2",gpu="3",hostname="n2",GPU_I_ID="2",pod="b"}}': "5x9",
        f'{counter}{{UUID="GPU-3",gpu="0",hostname="n3"}}': "99x9",
    }


def gpus(first: float, second: float) -> dict[str, float]:
    """The figures of the two GPUs that a runtime knows."""
    return {f'{{UUID="GPU-1",gpu="0",{HERE}}}': first, f'{{UUID="GPU-2",gpu="3",{THERE}}}': second}


FIGURES: tuple[tuple[str, int, str, Series, dict[str, float]], ...] = (
    ("Utilisation (DCGM)", 0, ".*", of_dcgm("DCGM_FI_DEV_GPU_UTIL"), gpus(40, 7)),
    ("Utilisation (DCGM)", 0, "training", of_dcgm("DCGM_FI_DEV_GPU_UTIL"), {f'{{UUID="GPU-2",gpu="3",{THERE}}}': 7}),
    ("Memory in use (DCGM)", 0, ".*", of_dcgm("DCGM_FI_DEV_FB_USED"), gpus(40, 12)),
    ("Clocks (DCGM)", 1, ".*", of_dcgm("DCGM_FI_DEV_MEM_CLOCK"), gpus(40e6, 7e6)),
    # The node has just left the pool `notebooks`, whose last series are not stale yet.
    ("Power (DCGM)", 0, ".*",
     {f'{TOTAL}{{{HERE},gpu="GPU-1"}}': "1000", f'{TOTAL}{{{THERE},gpu="GPU-1"}}': "_x2 1000x9",
      'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1",gpu="0"}': "40 _x2 60x9"},
     {'{UUID="GPU-1",gpu="0",node="n2",pool="training"}': 60}),
    # n1 waits for tenants, n2 serves its reason itself, n3 is of another DaemonSet.
    ("Nodes by reason", 1, ".*", {
        f'kube_pod_info{{{OURS}notebooks",node="n1",pod="x"}}': "1x9", f'{CONDITION}"n1"}}': "1x9",
        f'kube_pod_info{{{OURS}training",node="n2",pod="y"}}': "1x9", f'{CONDITION}"n2"}}': "1x9",
        f'gpushare_node_condition{{{THERE},reason="GpuLost"}}': "1x9",
        f'kube_pod_info{{{OURS.replace("gpu-system", "other")}demo",node="n3",pod="z"}}': "1x9", f'{CONDITION}"n3"}}': "1x9",
    }, {'{pool="notebooks"}': 1}),
    ("Memory of namespaces", 0, ".*", {
        f'gpushare_container_gpu_memory_used_bytes{{{HERE},namespace="a",pod="p",container="c",gpu="GPU-1"}}': "3x9",
        f'gpushare_container_gpu_memory_used_bytes{{{HERE},namespace="a",pod="q",container="c",gpu="GPU-1"}}': "4x9",
    }, {'{namespace="a",pool="notebooks"}': 7}),
)


@pytest.mark.windows
@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure[0]} of {figure[2]}")
def test_a_panel_shows_what_is_there(figure: tuple[str, int, str, Series, dict[str, float]], tmp_path: Path) -> None:
    title, number, pool, series, expected = figure
    panel = next(one for one in PANELS if one.title == title)
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    query = {"expr": panel.queries[number].expr.replace("$pool", pool), "eval_time": "4m", "exp_samples": samples}
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}
    done = evaluate(tmp_path, [test])
    assert done.returncode == 0, done.stdout + done.stderr


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
