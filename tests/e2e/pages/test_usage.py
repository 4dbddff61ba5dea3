"""`gpushare usage` with a real Prometheus that has two days of which every number is known."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from gpushare.reading import schema
from tests.compiler.cli.process import gpushare
from tests.e2e.pages.served import serving

START = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp())
HOUR, HOURS = 3600, 48
MIB = 1 << 20
INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: month}
spec:
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}}
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
"""
POOL = 'node="n1",pool="notebooks"'
HELD = 'resource="nvidia_com_gpu_shared",node="n1",container="c"'
USED = "gpushare_container_gpu_memory_used_bytes"
# Series → hours in which it has samples, and their value. From 30 to 32 the runtime is not scraped.
SCRAPED = [(0, 30), (32, 48)]
SERIES: dict[str, tuple[list[tuple[int, int]], float]] = {
    'kube_node_status_condition{node="n1",condition="Ready",status="true"}': ([(0, 48)], 1),
    f'gpushare_build_info{{{POOL},version="0.1.0",nvml="",driver=""}}': (SCRAPED, 1),
    'gpushare:pool_shares:sum{pool="notebooks",resource="nvidia_com_gpu_shared"}': (SCRAPED, 4),
    f'kube_pod_container_resource_requests{{{HELD},namespace="a",pod="long"}}': ([(0, 48)], 2),
    'kube_pod_status_phase{namespace="a",pod="long",phase="Running"}': ([(0, 48)], 1),
    f'kube_pod_container_resource_requests{{{HELD},namespace="b",pod="short"}}': ([(0, 20)], 1),
    'kube_pod_status_phase{namespace="b",pod="short",phase="Running"}': ([(0, 10)], 1),
    'kube_pod_status_phase{namespace="b",pod="short",phase="Succeeded"}': ([(10, 20)], 1),
    f'{USED}{{{POOL},namespace="a",pod="long",container="c",gpu="0"}}': (SCRAPED, 512 * MIB),
}


def openmetrics() -> str:
    """A sample each minute, the last of an hour 6 minutes before its end: so long Prometheus takes the last one as valid."""
    lines = []
    for series, (spans, value) in SERIES.items():
        lines.append(f"# TYPE {series.partition('{')[0]} gauge")
        for first, last in spans:
            end = last * HOUR if last == HOURS else last * HOUR - 360
            lines += [f"{series} {value} {START + second}" for second in range(first * HOUR, end, 60)]
    ordered = sorted(dict.fromkeys(lines), key=lambda line: line.removeprefix("# TYPE ").partition("{")[0].partition(" ")[0])
    return "\n".join([*ordered, "# EOF", ""])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url


def test_hours_of_real_samples_are_counted_and_gaps_are_named(address: str, tmp_path: Path) -> None:
    intent, prices = tmp_path / "intent.yaml", tmp_path / "prices.yaml"
    intent.write_text(INTENT)
    prices.write_text("t4: 0.40 EUR/h\n")
    call = ("usage", intent, "--prometheus", address, "--from", "2026-01-31", "--to", "2026-02-02", "--prices", prices)
    done = gpushare(*call, "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert schema.accepts(schema.load("usage.v1"), found)
    resource = "nvidia.com/gpu.shared"
    used = {(one["namespace"], one["pool"]): one for one in found["uses"]}
    # Two shares of four in each of 46 hours are 23 GPU-hours; the two others are without a pool.
    assert used["a", "notebooks"]["shares"][resource] == {"shareHours": 92, "gpuHours": 23, "cost": 9.2}
    assert used["a", "notebooks"]["gibHours"] == 23
    assert used["a", None]["shares"][resource] == {"shareHours": 4, "gpuHours": None, "cost": None}
    assert used["b", "notebooks"]["shares"][resource]["shareHours"] == 10
    assert found["pools"]["notebooks"]["offeredShareHours"] == {resource: 184}
    assert found["gaps"] == [
        {
            "metric": metric,
            "pool": "notebooks",
            "from": "2026-02-01T06:00Z",
            "to": "2026-02-01T08:00Z",
            "missingHours": 2,
        }
        for metric in ("gpushare_build_info", "gpushare:pool_shares:sum")
    ]
    assert "Not counted: pool notebooks, whose runtimes have no samples: 2 of 48 hours" in done.stderr


def test_month_without_samples_and_a_bad_query_are_errors(address: str, tmp_path: Path) -> None:
    intent = tmp_path / "intent.yaml"
    intent.write_text(INTENT)
    done = gpushare("usage", intent, "--prometheus", address, "--from", "2025-10-05", "--to", "2025-10-06")
    assert (done.returncode, done.stdout) == (2, "")
    assert "has no sample of kube-state-metrics or of a runtime in this period" in done.stderr
    lost = gpushare("usage", intent, "--prometheus", f"{address}/graph", "--from", "2025-10-05", "--to", "2025-10-06")
    assert lost.returncode == 2
    assert "name the address that serves /api/v1/query" in lost.stderr
