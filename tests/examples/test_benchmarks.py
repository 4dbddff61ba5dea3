"""examples/benchmarks: the Job is one that Kubernetes accepts, its work counts, and the table says what is missing."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest

from tests.compiler.cli.process import gpushare
from tests.support.paths import ROOT

FOLDER = ROOT / "examples" / "benchmarks"
VERSION = kubernetes_validate.latest_version()
TORCH = """
import time
float16 = None
class cuda:
    synchronize = staticmethod(lambda: time.sleep(0.01))
    max_memory_allocated = staticmethod(lambda: 96 << 20)
class Matrix:
    def __matmul__(self, other):
        return self
def rand(*size, device, dtype):
    assert device == "cuda"
    return Matrix()
"""


def run(name: str, *arguments: str, stdin: str = "", **environment: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(FOLDER / name), *arguments]
    return subprocess.run(command, input=stdin, env={**os.environ, **environment}, capture_output=True, text=True, check=False)


def plan(example: str) -> str:
    return gpushare("show", ROOT / "examples" / example / "intent.yaml", "--format", "json").stdout


def job(example: str, *arguments: str) -> dict[str, Any]:
    done = run("job.py", "--image", "example.org/pytorch", *arguments, stdin=plan(example))
    assert done.returncode == 0, done.stderr
    work, job = json.loads(done.stdout)["items"]
    for item in (work, job):
        kubernetes_validate.validate(item, VERSION, strict=True)
    return dict(job)


@pytest.mark.parametrize(
    ("example", "pool", "resource"),
    [("02-t4-notebooks", "notebooks", ""), ("04-a100-training-mig", "balanced", "nvidia.com/mig-1g.10gb"),
     ("03-mps-inference", "", "")],
)
def test_the_job_has_a_pod_for_every_share_of_the_nodes(example: str, pool: str, resource: str) -> None:
    pools = json.loads(plan(example))["pools"]
    pool = pool or next(name for name, one in sorted(pools.items()) if len(one["resources"]) == 1)
    resource = resource or next(iter(pools[pool]["resources"]))
    made = job(example, "--pool", pool, "--resource", resource, "--nodes", "2")
    assert made["spec"]["completions"] == made["spec"]["parallelism"] == 2 * pools[pool]["resources"][resource]["perNode"]
    spec = made["spec"]["template"]["spec"]
    assert spec["nodeSelector"] == {"gpushare.dev/pool": pool}
    assert spec["containers"][0]["resources"] == {"limits": {resource: 1}}


def test_unfillable_job_is_an_error_that_lists_the_choices() -> None:
    text = plan("04-a100-training-mig")
    unknown = run("job.py", "--image", "i", "--pool", "x", stdin=text)
    assert (unknown.returncode, "there is no pool x: " in unknown.stderr) == (2, True)
    several = run("job.py", "--image", "i", "--pool", "balanced", stdin=text)
    assert (several.returncode, "--resource: nvidia.com/mig-1g.10gb, nvidia.com/mig-2g.20gb" in several.stderr) == (2, True)


def worked(environment: dict[str, str], start_in: int) -> str:
    """The logs of two shares; empty if this machine needed longer than these seconds to start one of them."""
    start = str(int(time.time()) + start_in)
    running = [
        subprocess.Popen([sys.executable, str(FOLDER / "benchmark.py")], text=True, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, env={**environment, "JOB_COMPLETION_INDEX": str(index), "START": start})
        for index in range(2)
    ]
    ended = [(*process.communicate(), process.returncode) for process in running]
    if any("give the Job more time" in errors for _, errors, _ in ended):
        return ""
    assert [code for *_, code in ended] == [0, 0], ended
    return "".join(f"[pod/benchmark-{index}/work] {text}" for index, (text, *_) in enumerate(ended))


def test_work_of_every_share_is_counted_from_the_same_second(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(TORCH)
    made = job("02-t4-notebooks", "--pool", "notebooks", "--seconds", "3", "--start-in", "5")
    [container] = made["spec"]["template"]["spec"]["containers"]
    variables = {one["name"]: one.get("value", "node-1") for one in container["env"]}
    environment = {**os.environ, **variables, "PYTHONPATH": str(tmp_path)}
    logs = next(filter(None, (worked(environment, start_in) for start_in in (2, 5, 30))))
    told = json.loads(run("collect.py", "--format", "json", "--shares", "2", stdin=logs).stdout)
    assert [(one["share"], one["node"], one["peakMiB"]) for one in told["shares"]] == [(0, "node-1", 96), (1, "node-1", 96)]
    assert told["least"] > 0
    late = run("benchmark.py", **{**variables, "PYTHONPATH": str(tmp_path), "START": "1", "JOB_COMPLETION_INDEX": "0"})
    assert (late.returncode, late.stdout) == (1, "")
    assert "--start-in" in late.stderr


def line(share: int, *counts: int) -> str:
    return json.dumps({"benchmark": {"share": share, "node": "n", "counts": counts, "peakMiB": 1}}) + "\n"


def test_table_omits_truncated_results_and_lists_missing_ones() -> None:
    done = run("collect.py", "--shares", "3", stdin=line(1, 9, 4, 6, 0) + line(0, 1, 20, 20, 3))
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1] == (
        "2 shares, 2 s: all 25 per second; of one share at least 5, median 12.5, at most 20"
    )
    assert "1 of 3 shares have no result" in done.stderr
    assert run("collect.py", stdin="starting\n").returncode == 1
    hostile = 'x {"benchmark": {"share": "a"}}\n{"benchmark": [}\n{"benchmark": 3}\n' + line(0, 1, 2, 3)
    done = run("collect.py", stdin=hostile)
    assert (done.returncode, done.stderr.count("not a result")) == (0, 3)


def test_commands_on_the_page_match_the_job() -> None:
    text = (FOLDER / "README.md").read_text()
    [block] = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    made = job("02-t4-notebooks", "--pool", "notebooks")
    assert block.count(made["metadata"]["name"]) == 2
    for script in re.findall(r"examples/benchmarks/\w+\.py", block):
        assert (ROOT / script).is_file()
