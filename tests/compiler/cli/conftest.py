"""Intents to run the commands on."""

from pathlib import Path

import pytest

GOOD = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  platform: {image: {repository: registry.example.org/gpushare/node-runtime}}
  pools:
    notebooks:
      card: t4
      nodes: {matchLabels: {gpu: t4}, expected: 3}
      gpusPerNode: 2
      sharing: {mode: time-slicing, replicas: 4}
      memory: {cap: 3Gi}
    training:
      card: a100-sxm4-40gb
      nodes: {matchLabels: {gpu: a100}}
      gpusPerNode: 4
      sharing:
        mode: mig
        layouts:
        - {gpus: [0, 1, 2], layout: {3g.20gb: 1, 1g.5gb: 3}}
        - {gpus: [3], layout: none}
        replicas: {1g.5gb: 2}
  quotas:
    team: {notebooks: 8}
"""
BAD = GOOD.replace("{3g.20gb: 1, 1g.5gb: 3}", "{3g.20gb: 2, 1g.5gb: 1}")
WARNING = GOOD.replace("cap: 3Gi", "cap: 256Mi")


@pytest.fixture(autouse=True)
def _plain_surroundings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_ACTIONS", "NO_COLOR", "COLUMNS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def intents(tmp_path: Path) -> Path:
    """A folder with good.yaml, bad.yaml (GS402 and what follows) and warning.yaml (GS504)."""
    for name, text in (("good", GOOD), ("bad", BAD), ("warning", WARNING)):
        (tmp_path / f"{name}.yaml").write_text(text)
    return tmp_path
