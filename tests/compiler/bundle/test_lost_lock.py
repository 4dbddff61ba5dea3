"""A bundle whose lock is gone says so, and still compiles."""

import json
from pathlib import Path

import pytest

from tests.compiler.cli.process import gpushare

INTENT = """apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: c}
spec:
  platform: {registry: registry.example.org}
  pools: {p: {card: t4, nodes: {matchLabels: {a: b}}, gpusPerNode: 4, sharing: {mode: exclusive}}}
"""


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    (tmp_path / "intent.yaml").write_text(INTENT)
    done = gpushare("compile", "intent.yaml", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    return tmp_path


def test_lost_lock_is_reported_once_and_recreated(compiled: Path) -> None:
    (compiled / "bundle/gpushare.lock.yaml").unlink()
    done = gpushare("compile", "--format", "json", "intent.yaml", cwd=compiled)
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["code"], finding["severity"], finding["file"]) == ("GS791", "warning", "bundle/gpushare.lock.yaml")
    assert "has lost its gpushare.lock.yaml" in finding["message"]
    assert (compiled / "bundle/gpushare.lock.yaml").exists()
    assert gpushare("compile", "intent.yaml", cwd=compiled).stderr == ""


def test_a_strict_compile_stops_at_a_lost_lock(compiled: Path) -> None:
    (compiled / "bundle/gpushare.lock.yaml").unlink()
    assert gpushare("compile", "--strict", "intent.yaml", cwd=compiled).returncode == 1
    assert not (compiled / "bundle/gpushare.lock.yaml").exists()


def test_first_compile_reports_no_lost_lock(compiled: Path) -> None:
    (compiled / "empty").mkdir()
    assert gpushare("compile", "-o", "empty", "intent.yaml", cwd=compiled).stderr == ""


@pytest.mark.parametrize(
    ("folder", "chart"), [("./-y", "./-y/chart"), ("my bundle", "'my bundle/chart'")], ids=["like a flag", "with a space"]
)
def test_printed_next_command_is_quoted_for_any_folder_name(compiled: Path, folder: str, chart: str) -> None:
    done = gpushare("compile", "-o", folder, "intent.yaml", cwd=compiled)
    assert f"helm upgrade --install gpushare {chart} --namespace gpu-system" in done.stdout
