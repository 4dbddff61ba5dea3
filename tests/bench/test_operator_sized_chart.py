"""The stand-in of the benchmarks is as heavy for Helm as the chart that it stands for."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tests.bench.figures import GPU_OPERATOR, figures
from tests.bench.operator_sized_chart import write_chart
from tests.chart.conftest import run_helm  # noqa: F401 - a fixture


def test_synthetic_chart_has_the_real_charts_size(tmp_path: Path, run_helm: Any) -> None:  # noqa: F811
    chart = write_chart(tmp_path / "operator")
    rendered = run_helm(4, "template", "gpu-operator", chart, "--namespace", "gpu-system").stdout
    assert asdict(figures(chart, rendered)) == pytest.approx(asdict(GPU_OPERATOR), rel=0.05)
