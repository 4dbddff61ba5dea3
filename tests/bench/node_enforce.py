"""Enforcement's cycle at 8 GPUs with 60 processes each: CPU against bare ctypes calls in the same run, and memory over time.

Run in a process of its own that imports what enforcement imports in production. The GPUs are the fake
ones of the tests under the real pynvml; the processes are real. The tests' own modules are in the resident figure.

The peer is the least that a program pays for looking at the rows: the calls, and pid, bytes and GPU instance of each row as
Python's values. The calls alone are told too: they leave bytes in a buffer. Neither of them knows whose the processes are.
`python -m tests.bench.node_enforce 100000` counts memory over more cycles.
"""

import ctypes
import itertools
import json
import logging
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.bench.history import Line, tell

GPUS, EACH = 8, 60
ROUNDS = 200
CYCLES = 5_000
WARM_UP = 1_000
MOVE_EVERY = 50
REACTIONS = 15
NO_INSTANCE = 0xFFFFFFFF
MAPPED = "7f0000000000-7f0000001000 rw-s 00000000 00:06 1 /dev/nvidia0\n"


def resident_kib() -> int:
    """What the process holds in memory now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() // 1024


class Bench:
    """A full node, and the watch over it."""

    def __init__(self, folder: Path) -> None:
        # Not at the top: the parent only starts this and must not load a fake NVML.
        from tests.node.enforce import enforcement
        from tests.support.fake_nvml import FakeNvml
        from tests.support.process_fixtures import ProcessPool, systemd_path

        os.environ["GPUSHARE_FAKE_NVML"] = ""
        self.fake_nvml = FakeNvml.make(folder)
        self.fake_nvml.load()
        gpus = [{"indexes": list(range(GPUS)), "mig": False, "instances": []}]
        self.stage = enforcement.EnforcementFixture(folder, self.fake_nvml, ProcessPool(), gpusPerNode=GPUS, gpus=gpus)
        self.pids = [subprocess.Popen(["/bin/sleep", "600"], start_new_session=True).pid for _ in range(GPUS * EACH)]
        for number, pid in enumerate(self.pids):
            gpu = number % GPUS
            self.stage.admit(number, f"pod-{number}", gpu)
            container = enforcement.container_id(number)
            self.stage.fake_proc.show(pid, systemd_path(enforcement.pod_uid(number), container))
        self.show(300)

    def cycle(self) -> None:
        self.stage.run()

    def show(self, used_mib: int, *, over: frozenset[int] = frozenset()) -> None:
        """What the driver lists now. Rows as given: the fake need not look whether each process lives, which no driver does."""
        for gpu in range(GPUS):
            self.fake_nvml.clear(gpu)
            # What is put in as it is counts for nothing in the fake's memory in use, which no row may exceed.
            self.fake_nvml.unattributed(gpu, 5000)
            self.fake_nvml.put_raw(
                gpu,
                [
                    (pid, (5000 if number in over else used_mib) << 20, NO_INSTANCE, NO_INSTANCE)
                    for number, pid in enumerate(self.pids)
                    if number % GPUS == gpu
                ],
            )

    def bare(self, *, with_rows: bool) -> Callable[[], object]:
        """The least that anyone must call: the three lists of each GPU with a kept buffer, and its memory."""
        import pynvml

        pynvml.nvmlInit()
        handles = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(GPUS)]
        names = [f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")]
        calls = [getattr(pynvml.nvmlLib, name) for name in names]
        buffer, count = (pynvml.c_nvmlProcessInfo_t * 128)(), ctypes.c_uint()

        def ask() -> list[tuple[int, int, int]]:
            rows: list[tuple[int, int, int]] = []
            for handle in handles:
                pynvml.nvmlDeviceGetMemoryInfo(handle)
                for call in calls:
                    count.value = 128
                    call(handle, ctypes.byref(count), buffer)
                    if with_rows:
                        rows += [(row.pid, row.usedGpuMemory, row.gpuInstanceId) for row in buffer[: count.value]]
            return rows

        return ask


def milliseconds(*jobs: Callable[[], object], before: Callable[[], object] = lambda: None) -> list[float]:
    """The least CPU time of each job, all threads; the jobs in turn, for what else the machine does slows all of them alike."""
    least = [math.inf] * len(jobs)
    for _ in range(ROUNDS):
        before()
        for number, job in enumerate(jobs):
            least[number] = min(least[number], spent_ms(job))
    return least


def spent_ms(job: Callable[[], object]) -> float:
    """CPU time, all threads."""
    start = time.process_time_ns()
    job()
    return (time.process_time_ns() - start) / 1e6


def reaction_ms(bench: Bench) -> tuple[float, float]:
    """From the beginning of the cycle that decides until the signal is sent: what comes on top of the poll. Wall, CPU."""
    taken: list[float] = []
    spent: list[float] = []
    began, began_cpu = 0.0, 0.0
    send = bench.stage.processes.send

    def timed(seen: Any, signal: Any) -> Any:
        answer = send(seen, signal)
        taken.append((time.perf_counter() - began) * 1000)
        spent.append((time.process_time() - began_cpu) * 1000)
        return answer

    bench.stage.processes.send = timed  # type: ignore[method-assign]
    for number in range(REACTIONS):
        bench.stage.fake_proc.fake(bench.pids[number], "maps", MAPPED)
        bench.show(300, over=frozenset({number}))
        for _ in range(20):
            began, began_cpu = time.perf_counter(), time.process_time()
            bench.cycle()
            if len(taken) > number:
                break
    assert len(taken) == REACTIONS
    return min(taken), min(spent)


def surveying_ms(bench: Bench) -> float:
    """The least CPU time of the cycles, one in thirty, that enumerate GPUs and instances again."""
    least = math.inf
    for _ in range(2 * ROUNDS):
        spent = spent_ms(bench.cycle)
        if bench.stage.enforcer.is_surveyed:
            least = min(least, spent)
    return least


def growth_kib(bench: Bench, cycles: int, uses: Iterator[int]) -> int:
    """How much more is held after these cycles, in some of which every use has changed."""
    start = 0
    for number in range(WARM_UP + cycles):
        if number == WARM_UP:
            start = resident_kib()
        if number % MOVE_EVERY == 0:
            bench.show(next(uses))
        bench.cycle()
    return resident_kib() - start


def measure(cycles: int) -> dict[str, float]:
    """All figures of one node."""
    # Resident in production.

    # What is logged is worked out, and not written.
    logging.getLogger().addHandler(logging.NullHandler())
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(Path(name))
        calls, bare = bench.bare(with_rows=False), bench.bare(with_rows=True)
        for _ in range(20):
            bench.cycle()

        uses = itertools.cycle(range(300, 350))
        ours, plain, least = milliseconds(bench.cycle, bare, calls)

        def move() -> None:
            bench.show(next(uses))
            # The fake driver takes up what has changed at the first call: no part of anybody's time.
            calls()

        moving, plain_moving = milliseconds(bench.cycle, bare, before=move)
        surveying = surveying_ms(bench)
        growth = growth_kib(bench, cycles, uses)
        resident = resident_kib()
        reaction, reaction_cpu = reaction_ms(bench)
        figures: dict[str, float] = {
            "steady": ours,
            "moving": moving,
            "bare": plain,
            "bare_moving": plain_moving,
            "calls": least,
            "surveying": surveying,
            "resident_mib": resident / 1024,
            "growth_kib": growth,
            "reaction": reaction,
            "reaction_cpu": reaction_cpu,
        }
        bench.fake_nvml.heal()
        for pid in bench.pids:
            os.kill(pid, 9)
        return figures


def lines(cycles: int = CYCLES) -> Iterator[Line]:
    """Measure in a process of its own."""
    command = [sys.executable, "-m", "tests.bench.node_enforce", "--measure", str(cycles)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    steady, moving, plain, plain_moving = (figures[name] for name in ("steady", "moving", "bare", "bare_moving"))
    yield Line(
        f"enforcement, 8 GPUs with 60 processes each: {steady:.2f} ms of CPU a cycle, {moving:.2f} ms when every use "
        f"has changed, {figures['surveying']:.2f} ms in the one of 30 that enumerates (at most 5); "
        f"{moving / 10:.2f} % of a core at 1 Hz (at most 0.5)"
    )
    yield Line(
        f"enforcement, bare ctypes calls and their rows: {plain:.2f} ms, ratio {steady / plain:.1f}, and "
        f"{moving / plain_moving:.1f} when every use has changed (at most 2); the calls alone {figures['calls']:.2f} ms",
        {"enforce.cycle": steady / plain, "enforce.moving": moving / plain_moving},
    )
    yield Line(
        f"enforcement, memory: {figures['resident_mib']:.0f} MiB resident (at most 64), {figures['growth_kib']:.0f} KiB "
        f"more after {cycles} cycles; from over the cap to the signal {figures['reaction']:.1f} ms beyond the poll, "
        f"{figures['reaction_cpu']:.1f} ms of them our own CPU time (at most 3)"
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(int(sys.argv[2]))))
        raise SystemExit(0)
    tell(lines(int(sys.argv[1]) if sys.argv[1:] else CYCLES))
