"""The queries of docs/showback.md, evaluated by Prometheus over two hours of which every number is known."""

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gpushare.core import emit
from gpushare.render.monitoring import showback
from gpushare.render.monitoring.alerts import groups
from tests.support.paths import ROOT

PAGE = (ROOT / "docs/showback.md").read_text(encoding="utf-8")
QUERIES = dict(re.findall(r"## ([^\n]+)\n(?:(?!## ).)*?```promql\n(.*?)```", PAGE, re.DOTALL))

POOL = 'node="n1",pool="notebooks"'
HELD = 'resource="nvidia_com_gpu_shared",node="n1",container="c"'
USED = "gpushare_container_gpu_memory_used_bytes"
GIB = 2**30
# Pod `long` of team a runs all the time with two shares, `short` of team b for the first hour with one; then it has completed.
SERIES = {
    f'gpushare_build_info{{{POOL},version="0.1.0",nvml="",driver=""}}': "1x130",
    f'gpushare_policy_info{{{POOL},digest="d",card="t4",mode="time-slicing",action="kill"}}': "1x130",
    'kube_namespace_labels{namespace="a",label_team="physics"}': "1x130",
    'kube_namespace_labels{namespace="b"}': "1x130",
    'kube_node_status_allocatable{resource="nvidia_com_gpu_shared",node="n1"}': "4x130",
    f'kube_pod_container_resource_requests{{{HELD},namespace="a",pod="long"}}': "2x130",
    f'kube_pod_container_resource_requests{{{HELD},namespace="b",pod="short"}}': "1x130",
    'kube_pod_status_phase{namespace="a",pod="long",phase="Running"}': "1x130",
    'kube_pod_status_phase{namespace="b",pod="short",phase="Running"}': "1x62 0x68",
    'kube_pod_status_phase{namespace="b",pod="short",phase="Succeeded"}': "0x62 1x68",
    f'{USED}{{{POOL},namespace="a",pod="long",container="c",gpu="0"}}': f"{3 * GIB}x130",
    f'{USED}{{{POOL},namespace="b",pod="short",container="c",gpu="0"}}': f"{8 * GIB}x62 stale _x67",
}
# Scraped by a second kube-state-metrics, or by a second Prometheus of one store; and labels that change at this step.
TWICE = {f'{name[:-1]},replica="b"}}': values for name, values in SERIES.items() if not name.startswith("kube_namespace")} | {
    'gpushare_build_info{node="n2",pool="notebooks"}': "1x130",
    'gpushare_build_info{node="n2",pool="training"}': "1x130",
    'gpushare_policy_info{node="n2",card="t4"}': "1x130",
    'gpushare_policy_info{node="n2",card="l4"}': "1x130",
    'kube_namespace_labels{namespace="c",label_team="physics"}': "1x130",
    'kube_namespace_labels{namespace="c",label_team="biology"}': "1x130",
}
RESOURCE = 'resource="nvidia_com_gpu_shared"'
EXPECTED: dict[str, dict[str, float]] = {
    "Share-hours by namespace": {f'{{namespace="a",{RESOURCE}}}': 4, f'{{namespace="b",{RESOURCE}}}': 1},
    "Share-hours by pool and namespace": {
        f'{{namespace="a",pool="notebooks",{RESOURCE}}}': 4,
        f'{{namespace="b",pool="notebooks",{RESOURCE}}}': 1,
    },
    "Share-hours by team": {f'{{label_team="physics",{RESOURCE}}}': 4},
    "Share-hours by card": {f'{{card="t4",{RESOURCE}}}': 5},
    "GiB-hours by namespace": {'{namespace="a"}': 6, '{namespace="b"}': 8},
    "GiB-hours by pool": {'{pool="notebooks"}': 14},
    "GiB-hours by pool and namespace": {'{namespace="a",pool="notebooks"}': 6, '{namespace="b",pool="notebooks"}': 8},
    "GiB-hours by team": {'{label_team="physics"}': 6},
    "GiB-hours by card": {'{card="t4"}': 14},
    "Share-hours offered by pool": {f'{{pool="notebooks",{RESOURCE}}}': 8},
    "Pool utilisation": {f'{{pool="notebooks",{RESOURCE}}}': 5 / 8},
}


def test_every_query_has_expected_numbers() -> None:
    assert QUERIES.keys() == EXPECTED.keys()


@pytest.mark.parametrize("title", EXPECTED)
def test_query_counts_allocated_and_used_shares(title: str, tmp_path: Path) -> None:
    evaluate(title, SERIES, tmp_path)


@pytest.mark.parametrize("title", EXPECTED)
def test_series_of_two_scrapers_count_once_and_a_change_of_labels_is_no_error(title: str, tmp_path: Path) -> None:
    evaluate(title, SERIES | TWICE, tmp_path)


def test_recorded_shares_of_two_prometheus_count_once(tmp_path: Path) -> None:
    name = f'gpushare:pool_shares:sum{{pool="notebooks",{RESOURCE}'
    series = {f"{name}}}": "4x130", f'{name},replica="b"}}': "4x130"}
    evaluate("Share-hours offered by pool", series, tmp_path, rules=False)


def test_clusters_and_renamed_labels_are_found(tmp_path: Path) -> None:
    requests = "kube_pod_container_resource_requests"
    series = {
        'gpushare_build_info{node="n1",pool="notebooks",cluster="north"}': "1x130",
        f'{requests}{{{HELD},exported_namespace="a",cluster="south"}}': "1x130",
        f'{requests}{{resource="cpu",node="n1",cluster="west"}}': "1x130",
    }
    found = ['{cluster="north"}', '{cluster="south"}']
    evaluated(showback.CLUSTERS, dict.fromkeys(found, 1), series, tmp_path, rules=False)
    evaluated(showback.renamed(), {f'{{__name__="{requests}"}}': 1}, series, tmp_path, rules=False)
    evaluated(showback.renamed("north"), {}, series, tmp_path, rules=False)


def evaluate(title: str, series: Mapping[str, str], tmp_path: Path, *, rules: bool = True) -> None:
    """At 2 h 2 min, so that no step is at either end of the two hours: whether it would count there depends on the version."""
    evaluated(QUERIES[title].replace("30d", "2h"), EXPECTED[title], series, tmp_path, rules=rules)


def evaluated(expr: str, expected: Mapping[str, float], series: Mapping[str, str], tmp_path: Path, *, rules: bool) -> None:
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    query = {"expr": expr, "eval_time": "122m", "exp_samples": samples}
    inputs = [{"series": name, "values": values} for name, values in series.items()]
    test: dict[str, Any] = {"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}
    document = {"rule_files": ["rules.yaml"] if rules else [], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "rules.yaml").write_text(emit.yaml_text(groups()))
    (tmp_path / "tests.yaml").write_text(json.dumps(document))
    command = ["promtool", "test", "rules", "tests.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
