"""`make bench`: timings of whole processes, each against a peer in the same run, printed as ratios. Nothing is asserted."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests import run
from tests.bench import api_load, cluster_loop, hostile, intents, node_boot, node_enforce, node_guard, node_plan, solver
from tests.bench.operator_sized_chart import write_chart
from tests.tools import helm

ROUNDS = 15


def seconds(command: list[str]) -> float:
    """Wall time of one process, which must succeed."""
    start = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return time.perf_counter() - start


def medians(*jobs: Callable[[], float]) -> list[float]:
    """The jobs in turn, ROUNDS times after one warm-up each, so that a drifting machine slows all of them alike."""
    for job in jobs:
        job()
    rounds = [[job() for job in jobs] for _ in range(ROUNDS)]
    return [statistics.median(column) for column in zip(*rounds, strict=True)]


def gpushare(*arguments: object) -> list[str]:
    """The installed program, as a user starts it."""
    return [str(Path(sys.executable).parent / "gpushare"), *map(str, arguments)]


def cold_compile(folder: Path) -> None:
    """Five pools into an empty folder, beside Helm rendering that very chart and one of an operator's size."""
    intent = folder / "five.yaml"
    intent.write_text(intents.five_pools())
    bundle = folder / "five"
    subprocess.run(gpushare("compile", intent, "-o", bundle), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    chart = write_chart(folder / "operator")
    number = iter(range(1000))

    def compile_fresh() -> float:
        return seconds(gpushare("compile", intent, "-o", folder / f"fresh{next(number)}"))

    def compile_current() -> float:
        return seconds(gpushare("compile", intent, "-o", bundle))

    for major in (4, 3):
        program = str(helm.helm(major))
        ours, again, generated, operator = medians(
            compile_fresh, compile_current,
            partial(seconds, [program, "template", "gpushare", str(bundle / "chart")]),
            partial(seconds, [program, "template", "operator", str(chart)]),
        )
        both = generated + operator
        print(f"cold compile, five pools, Helm {major}: {ours * 1000:.0f} ms; helm template of the generated chart "
              f"{generated * 1000:.0f} ms + of an operator-sized chart {operator * 1000:.0f} ms = {both * 1000:.0f} ms; "
              f"ratio {ours / both:.2f} (at most 1, aim 0.5); compile of a current bundle {again / both:.2f}")


def measured(command: list[str]) -> tuple[float, float]:
    """Wall seconds and peak MiB of one process."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return time.perf_counter() - start, usage.ru_maxrss / 1024


def scale(folder: Path) -> None:
    """1,000 pools with 20 named nodes each; linearity from 100 to 2,000 pools."""
    figures = {}
    for pools in (100, 500, 1000, 2000):
        intent = folder / f"{pools}.yaml"
        intent.write_text(intents.many_pools(pools, nodes=20))
        figures[pools] = measured(gpushare("compile", intent, "-o", folder / f"out{pools}"))
        wall, memory = figures[pools]
        each = wall / pools * 1000
        print(f"compile, {pools} pools, {pools * 20} named nodes: {wall:.2f} s, {memory:.0f} MiB, {each:.2f} ms a pool")
    growth = figures[2000][0] / 2000 / (figures[500][0] / 500)
    print(f"time for a pool, 2,000 pools against 500: {growth:.2f} (linear: about 1)")


def main() -> int:
    """All benchmarks, in a folder that goes away."""
    with tempfile.TemporaryDirectory() as name:
        cold_compile(Path(name))
        scale(Path(name))
    hostile.main()
    solver.main()
    node_plan.main()
    node_boot.main()
    node_guard.main()
    node_enforce.main()
    reasons = list(run.why_not(run.CLUSTER))
    if reasons:
        print(f"LEFT OUT  the loop on a real cluster, and the load on an API server: {', '.join(reasons)}")
    else:
        cluster_loop.main()
        api_load.main()
    return 0


if __name__ == "__main__":
    sys.exit(main())
