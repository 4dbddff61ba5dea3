"""Measured use from a real Prometheus, of which every sample is known: nothing between two instants is lost."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime

import pytest

from gpushare import pipeline
from gpushare.bundle import lock
from gpushare.study.advice import distribution, prometheus_history
from gpushare.study.advice.history import History
from gpushare.study.measured.prometheus import Prometheus
from tests.e2e.pages.served import serving

START = int(datetime(2026, 1, 31, tzinfo=UTC).timestamp())
HOUR, HOURS = 3600, 30
MIB, GIB = 1 << 20, 1 << 30
INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: month}
spec:
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {example.org/gpu: t4}, expected: 2}
      gpusPerNode: 1
      sharing: {mode: time-slicing, replicas: 4}
    whole:
      card: l4
      nodes: {matchLabels: {example.org/gpu: l4}}
      gpusPerNode: 1
      sharing: {mode: exclusive}
"""
SCRAPED = [*range(0, 10 * HOUR, 30), *range(12 * HOUR, HOURS * HOUR, 30)]
"""From 10 to 12 the runtime is not scraped."""
SPIKE = 3 * HOUR + 30
"""Of 30 seconds: no instant of a minute has it."""

DCGM = 60 * HOUR
"""From here on only dcgm-exporter is scraped."""
OF_DCGM = 'gpu="0",UUID="GPU-2",modelName="NVIDIA L4",namespace="monitoring",pod="dcgm-exporter-x7k2p",container="exporter"'


def openmetrics() -> str:
    node = 'node="n1",pool="notebooks"'
    tenant = f'{node},namespace="a",pod="p",container="c",gpu="GPU-1"'
    series: Mapping[str, Mapping[int, float]] = {
        f'gpushare_build_info{{{node},version="0.1.0"}}': dict.fromkeys(SCRAPED, 1),
        f"gpushare_container_gpu_memory_cap_bytes{{{tenant}}}": {at: 3 * GIB if at < 20 * HOUR else 4 * GIB for at in SCRAPED},
        # Two Prometheus have the series.
        **{
            f'gpushare_container_gpu_memory_used_bytes{{{tenant},replica="{one}"}}': {
                at: 3 * GIB if at == SPIKE else GIB + one * MIB for at in SCRAPED
            }
            for one in (0, 1)
        },
        f'DCGM_FI_DEV_FB_USED{{{OF_DCGM},exported_namespace="b",exported_pod="q",exported_container="c"}}': {
            at: 9000 if at == DCGM + SPIKE else 700 for at in range(DCGM, DCGM + 5 * HOUR, 30)
        },
        f"DCGM_FI_DEV_FB_USED{{{OF_DCGM}}}": dict.fromkeys(range(DCGM + 5 * HOUR, DCGM + 6 * HOUR, 30), 3),
    }
    lines = []
    for name, points in series.items():
        lines += [f"# TYPE {name.partition('{')[0]} gauge", *(f"{name} {value} {START + at}" for at, value in points.items())]
    return "\n".join([*dict.fromkeys(lines), "# EOF", ""])


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(tmp_path_factory.mktemp("prometheus"), openmetrics()) as url:
        yield url


def read(address: str, first: int, last: int) -> History:
    plan = pipeline.compile_intent(INTENT.encode(), "intent.yaml", lock.EMPTY).plan
    assert plan is not None
    prometheus = Prometheus(address, {}, token="", ca_file="", timeout_seconds=30)
    return prometheus_history.read(prometheus, plan, (START + first * HOUR, START + last * HOUR))


def test_spike_between_two_instants_is_found_and_gaps_are_told(address: str) -> None:
    found = read(address, 0, HOURS)
    [one] = found.containers
    assert (found.step_seconds, one.cap_bytes) == (60, 3 * GIB)
    used = dict(one.points)
    assert {at for at, most in used.items() if most == 3 * GIB} <= {START + SPIKE - 60, START + SPIKE - 30}
    assert set(used.values()) == {GIB + MIB, 3 * GIB}
    assert distribution.peak(one, (START, START + HOURS * HOUR), found.gap_seconds) == 3 * GIB
    assert found.missing == {"notebooks": pytest.approx(2 / HOURS, abs=0.01), "whole": 1.0}
    assert found.warnings == ("pool notebooks: at most 1 of its 2 nodes were scraped at once",)
    assert "1 container had several caps in the window: the smallest counts" in found.assumed
    covered = distribution.coverage(found, "notebooks", (found.start, found.end))
    assert covered.gaps == pytest.approx(2 * HOUR, abs=120)
    assert covered.gaps + covered.measured == pytest.approx(HOURS * HOUR, abs=60)


def test_part_of_the_window_has_its_own_cap_and_no_gap(address: str) -> None:
    found = read(address, 21, 29)
    [one] = found.containers
    assert one.cap_bytes == 4 * GIB
    assert (found.missing["notebooks"], len(one.points)) == (0.0, 8 * 60)


def test_whole_gpus_are_measured_by_dcgm_where_no_runtime_is_scraped(address: str) -> None:
    found = read(address, 60, 66)
    [one] = found.containers
    assert (one.namespace, one.pod, one.container, one.pool, one.device) == ("b", "q", "c", "whole", "GPU-2")
    assert {used for _, used in one.points} == {700 * MIB, 9000 * MIB}
    assert (len(one.points), found.missing) == (5 * 60, {"whole": 0.0})
