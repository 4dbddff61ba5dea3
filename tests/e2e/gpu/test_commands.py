"""The commands of the node runtime on real GPUs, under policies that the compiler wrote for them. Nothing is changed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpushare.facts.catalog.cards import Card
from gpushare_node.vendors.driver import ComputeMode, GpuInfo
from tests.compiler.render import compiled

MODES = {"exclusive": "{mode: exclusive}", "time-slicing": "{mode: time-slicing, replicas: 4}"}


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "gpushare_node", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=dict(os.environ))


def policy(card: Card, gpus: int, sharing: str) -> str:
    """That of a pool of this machine's card."""
    pool = f"{{card: {card.id}, nodes: {{matchLabels: {{p: x}}}}, gpusPerNode: {gpus}, sharing: {sharing}}}"
    return compiled.files("here", here=pool)["chart/files/policies/here.yaml"]


def test_export_prints_every_gpu(surveys: tuple[GpuInfo, ...]) -> None:
    done = run("export", "--format", "json")
    print(done.stdout, done.stderr)
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["gpus"]) == len(surveys)


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_gpu_matches_a_policy_that_divides_none(
    card: Card, surveys: tuple[GpuInfo, ...], tmp_path: Path, mode: str
) -> None:
    assert {one.compute_mode for one in surveys} == {ComputeMode.DEFAULT}, "the compute mode is not ours to change here"
    state = ("--state-dir", str(tmp_path / "state"))
    text = policy(card, len(surveys), MODES[mode])
    checked = run("apply", "--policy", "-", "--standalone", "--check", "--diff", *state, text=text)
    print(checked.stdout, checked.stderr)
    assert checked.returncode == 0
    assert "changed=0 failed=0" in checked.stdout
    assert not (tmp_path / "state").exists()


def test_a_policy_for_another_number_of_gpus_is_refused(card: Card, surveys: tuple[GpuInfo, ...], tmp_path: Path) -> None:
    text = policy(card, len(surveys) + 1, MODES["exclusive"])
    refused = run("apply", "--policy", "-", "--standalone", "--check", "--state-dir", str(tmp_path), text=text)
    print(refused.stdout, refused.stderr)
    assert refused.returncode == 1
