"""`make demo`: what a newcomer sees first ends as it should."""

import os
import subprocess
import sys
from pathlib import Path

from tests.support.paths import ROOT


def test_demo_runs_show_plan_and_a_refusal(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(["sh", "examples/demo.sh", tmp_path], cwd=ROOT, env={**os.environ, "PATH": path},
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = done.stdout.split("\n== ")
    expected = ("38 objects in", "training  NVIDIA A100-PCIE-40GB, mig", "~ notebooks", "error GS402")
    for part, words in zip(parts[-4:], expected, strict=True):
        assert words in part
    assert "1 error\n" in parts[-1]
