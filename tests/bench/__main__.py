"""`make bench`: timings of whole processes, each against a peer in the same run, as ratios, printed and kept.

Nothing is asserted. `history` says where they are kept.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from gpushare.rules.pools import MOST_POOLS
from tests.bench import api_load, cluster_loop, hostile, intents, node_boot, node_enforce, node_guard, node_plan, solver
from tests.bench.history import Line, append, tell
from tests.bench.operator_sized_chart import write_chart
from tests.e2e.nvidia import charts
from tests.runner import needs, suites
from tests.support import helm
from tests.support.clone import copy_to
from tests.support.paths import ROOT

ROUNDS = 15
NODES = 67
"""In each pool of the largest intents."""
DEMO = ROOT / "examples" / "01-heterogeneous"
READ = "import sys, yaml; yaml.load(open(sys.argv[1], 'rb'), yaml.CSafeLoader)"


def least(*jobs: Callable[[], float]) -> list[float]:
    """The jobs in turn, ROUNDS times after one warm-up each, so that a busy machine slows all alike; the best of each."""
    for job in jobs:
        job()
    rounds = [[job() for job in jobs] for _ in range(ROUNDS)]
    return [min(column) for column in zip(*rounds, strict=True)]


Program = Callable[..., list[str]]
"""From arguments to a command."""


def installed(folder: Path) -> Program:
    """gpushare as users have it, from a wheel: the editable install of a clone first loads what finds the clone."""
    venv = folder / "venv"
    subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    subprocess.run([venv / "bin" / "pip", "install", "--quiet", copy_to(folder / "clone")], check=True)
    return lambda *arguments: [str(venv / "bin" / "gpushare"), *map(str, arguments)]


def cold_compile(folder: Path, gpushare: Program) -> Iterator[Line]:
    """Four pools into an empty folder, beside Helm rendering that very chart and NVIDIA's operator's, or one of its size."""
    intent, bundle = DEMO / "intent.yaml", folder / "four"
    cpu(gpushare("compile", intent, "-o", bundle))
    chart = charts.unpack("gpu-operator", folder) if charts.folder() else write_chart(folder / "operator")
    peer = "operator" if charts.folder() else "stand-in"
    told = "NVIDIA's operator chart" if charts.folder() else "a chart of the operator's size (the real one: NVIDIA=FOLDER)"
    values = ["--values", str(bundle / "gpu-operator" / "values.yaml")] if charts.folder() else []
    number = iter(range(1000))

    def compile_fresh() -> float:
        return cpu(gpushare("compile", intent, "-o", folder / f"fresh{next(number)}"))

    for major in (4, 3):
        program = str(helm.helm(major))
        ours, again, check, show, generated, operator = least(
            compile_fresh,
            partial(cpu, gpushare("compile", intent, "-o", bundle)),
            partial(cpu, gpushare("check", intent)),
            partial(cpu, gpushare("show", intent)),
            partial(cpu, [program, "template", "gpushare", str(bundle / "chart"), "--namespace", "gpu-system"]),
            partial(cpu, [program, "template", "gpu-operator", str(chart), *values]),
        )
        yield Line(
            f"cold compile, four pools, CPU time: {ours * 1000:.0f} ms; "
            f"Helm {major} template of {told}: {operator * 1000:.0f} ms; "
            f"ratio {ours / operator:.2f} (aim 0.8); of the generated chart: {generated * 1000:.0f} ms; "
            f"against the cold compile: check {check / ours:.2f}, show {show / ours:.2f}, "
            f"compile of a current bundle {again / ours:.2f}",
            {
                f"compile.cold.{peer}.helm{major}": ours / operator,
                f"compile.check.helm{major}": check / ours,
                f"compile.show.helm{major}": show / ours,
                f"compile.current.helm{major}": again / ours,
            },
        )


def cpu(command: list[str]) -> float:
    """Seconds of processor time of one process, which must succeed."""
    return measured(command)[2]


def measured(command: list[str]) -> tuple[float, float, float]:
    """Wall seconds, peak MiB and seconds of processor time of one process, which must succeed."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime


def scale(folder: Path, gpushare: Program) -> Iterator[Line]:
    """The most pools without a warning, with 20,000 named nodes; linearity up to them."""
    figures = {}
    for pools in (MOST_POOLS // 4, MOST_POOLS // 2, MOST_POOLS):
        intent = folder / f"{pools}.yaml"
        intent.write_text(intents.many_pools(pools, NODES))
        figures[pools] = measured(gpushare("compile", intent, "-o", folder / f"out{pools}"))
        wall, memory, busy = figures[pools]
        plain = cpu([sys.executable, "-c", READ, str(intent)])
        each = wall / pools * 1000
        yield Line(
            f"compile, {pools} pools, {pools * NODES} named nodes: {wall:.2f} s, {memory:.0f} MiB, "
            f"{each:.2f} ms a pool; CPU time against PyYAML's CSafeLoader on the same text: {busy / plain:.2f}",
            {f"scale.{pools}": busy / plain},
        )
    growth = figures[MOST_POOLS][0] / 4 / figures[MOST_POOLS // 4][0]
    yield Line(f"time for a pool, of {MOST_POOLS} against a quarter: {growth:.2f} (linear: about 1)", {"scale.growth": growth})


def lines() -> Iterator[Line]:
    """All benchmarks, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as name:
        program = installed(Path(name))
        yield from cold_compile(Path(name), program)
        yield from scale(Path(name), program)
    for bench in (hostile, solver, node_plan, node_boot, node_guard, node_enforce):
        yield from bench.lines()
    reasons = list(needs.missing(suites.CLUSTER))
    if reasons:
        yield Line(f"LEFT OUT  the loop on a real cluster, and the load on an API server: {', '.join(reasons)}")
    else:
        yield from cluster_loop.lines()
        yield from api_load.lines()


if __name__ == "__main__":
    append(tell(lines()))
