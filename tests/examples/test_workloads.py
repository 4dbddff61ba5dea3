"""examples/workloads: each is generated, and has the shape that it says."""

from collections import Counter
from pathlib import Path

import pytest

from gpushare.study.workload import load
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "workloads"


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.yaml")), ids=lambda path: path.name)
def test_workload_is_generated(path: Path) -> None:
    found = load(path.read_bytes(), path.name)
    assert len(found.pods) > 1000
    assert not found.left_out


def test_packing_has_many_sizes_of_parts_and_few_pods_with_several_gpus() -> None:
    pods = load((FOLDER / "packing.yaml").read_bytes(), "packing.yaml").pods
    parts = Counter(pod.milli for pod in pods if pod.milli)
    assert len(parts) == 20
    assert 0.35 < parts.total() / len(pods) < 0.5
    several = [pod.gpus for pod in pods if pod.gpus and pod.gpus > 1]
    assert len(several) / len(pods) < 0.06
    assert sum(several) / (sum(pod.gpus or 0 for pod in pods) + sum(pod.milli or 0 for pod in pods) / 1000) > 0.2
