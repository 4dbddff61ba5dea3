"""Prometheus reads every query of the dashboard, and a panel shows the figures of made-up series."""

import subprocess
from pathlib import Path

import pytest

from gpushare.core import emit
from gpushare.render.monitoring.dashboard import PANELS
from tests.compiler.render.monitoring.series import Series
from tests.compiler.render.monitoring.test_dashboard import QUERIES
from tests.e2e.pages.promtool import evaluate

TOTAL = "gpushare_gpu_memory_total_bytes"
HERE, THERE = 'node="n1",pool="notebooks"', 'node="n2",pool="training"'
OURS = 'namespace="gpu-system",created_by_kind="DaemonSet",created_by_name="gpushare-'
CONDITION = 'kube_node_status_condition{condition="GPUShareReady",status="false",node='
GPUS = {
    f'{TOTAL}{{{HERE},gpu="GPU-1"}}': "1000x9",
    f'{TOTAL}{{{THERE},gpu="GPU-2"}}': "2000x9",
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
    (
        "Power (DCGM)",
        0,
        ".*",
        {
            f'{TOTAL}{{{HERE},gpu="GPU-1"}}': "1000",
            f'{TOTAL}{{{THERE},gpu="GPU-1"}}': "_x2 1000x9",
            'DCGM_FI_DEV_POWER_USAGE{UUID="GPU-1",gpu="0"}': "40 _x2 60x9",
        },
        {'{UUID="GPU-1",gpu="0",node="n2",pool="training"}': 60},
    ),
    # n1 waits for tenants, n2 serves its reason itself, n3 is of another DaemonSet.
    (
        "Nodes by reason",
        1,
        ".*",
        {
            f'kube_pod_info{{{OURS}notebooks",node="n1",pod="x"}}': "1x9",
            f'{CONDITION}"n1"}}': "1x9",
            f'kube_pod_info{{{OURS}training",node="n2",pod="y"}}': "1x9",
            f'{CONDITION}"n2"}}': "1x9",
            f'gpushare_node_condition{{{THERE},reason="GpuLost"}}': "1x9",
            f'kube_pod_info{{{OURS.replace("gpu-system", "other")}demo",node="n3",pod="z"}}': "1x9",
            f'{CONDITION}"n3"}}': "1x9",
        },
        {'{pool="notebooks"}': 1},
    ),
    (
        "Memory of namespaces",
        0,
        ".*",
        {
            f'gpushare_container_gpu_memory_used_bytes{{{HERE},namespace="a",pod="p",container="c",gpu="GPU-1"}}': "3x9",
            f'gpushare_container_gpu_memory_used_bytes{{{HERE},namespace="a",pod="q",container="c",gpu="GPU-1"}}': "4x9",
        },
        {'{namespace="a",pool="notebooks"}': 7},
    ),
)


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: f"{figure[0]} of {figure[2]}")
def test_panel_shows_the_expected_series(figure: tuple[str, int, str, Series, dict[str, float]], tmp_path: Path) -> None:
    title, number, pool, series, expected = figure
    panel = next(one for one in PANELS if one.title == title)
    samples = [{"labels": labels, "value": value} for labels, value in expected.items()]
    query = {"expr": panel.queries[number].expr.replace("$pool", pool), "eval_time": "4m", "exp_samples": samples}
    inputs = [{"series": metric, "values": values} for metric, values in series.items()]
    test = {"interval": "1m", "input_series": inputs, "promql_expr_test": [query]}
    done = evaluate(tmp_path, [test])
    assert done.returncode == 0, done.stdout + done.stderr


def test_prometheus_reads_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"query:{number}", "expr": query.expr.replace("$pool", ".*")} for number, query in enumerate(QUERIES)]
    (tmp_path / "queries.yaml").write_text(emit.yaml_text({"groups": [{"name": "dashboard", "rules": rules}]}))
    command = ["promtool", "check", "rules", "--lint-fatal", str(tmp_path / "queries.yaml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
