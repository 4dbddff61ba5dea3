"""A node's start when its GPUs are right already: what `apply` takes beyond the interpreter, and that it changes nothing."""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.bench.history import Line, tell
from tests.compiler.render import compiled
from tests.support.fake_nvml import FakeNvml

GPUS = 8
ROUNDS = 15
POOL = (
    "{card: a100-sxm4-40gb, nodes: {matchLabels: {p: x}}, gpusPerNode: 8,"
    " sharing: {mode: mig, layout: {3g.20gb: 1, 2g.10gb: 1, 1g.5gb: 2}}}"
)


def milliseconds(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Wall and CPU time of one process, which must succeed."""
    began = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return (time.perf_counter() - began) * 1000, (usage.ru_utime + usage.ru_stime) * 1000


def lines() -> Iterator[Line]:
    """The figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        fake_nvml = FakeNvml.make(folder, ("a100-sxm4-40gb",) * GPUS)
        policy = folder / "policy.yaml"
        policy.write_text(compiled.files("dense", dense=POOL)["chart/files/policies/dense.yaml"])
        environment = {key: value for key, value in os.environ.items() if key != "NODE_NAME"} | fake_nvml.environment
        bare = [sys.executable, "-c", "pass"]
        boot = [
            sys.executable,
            "-m",
            "gpushare_node",
            "apply",
            "--standalone",
            "--policy",
            str(policy),
            "--state-dir",
            str(folder / "state"),
        ]
        milliseconds(boot, environment)
        fake_nvml.forget_calls()
        # In turn, so that what else the machine does slows both alike; of each the best.
        rounds = [(*milliseconds(boot, environment), *milliseconds(bare, environment)) for _ in range(ROUNDS)]
        wall, cpu, bare_wall, bare_cpu = (min(column) for column in zip(*rounds, strict=True))
        calls = len(fake_nvml.calls())
        yield Line(
            f"node boot, {GPUS} A100 under MIG that are right already: {wall - bare_wall:.0f} ms beyond the "
            f"interpreter's {bare_wall:.0f} (at most 200), {cpu - bare_cpu:.0f} ms of CPU beyond {bare_cpu:.0f}; "
            f"{calls} calls that change anything (none)",
            {"node_boot.cpu": cpu / bare_cpu, "node_boot.calls": calls},
        )


if __name__ == "__main__":
    tell(lines())
