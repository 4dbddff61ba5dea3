"""The guard's CPU time for a cycle against a bare loop over the same rows in the same run, and its memory over many cycles."""

import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator

from gpushare_node.guard.evaluate import evaluate
from gpushare_node.guard.inputs import Cap, ContainerId, Grant, GuardInput, Owner, Process, ProcessKind
from gpushare_node.guard.process_list import Device, ProcessEntry
from gpushare_node.guard.state import GuardState
from tests.bench.history import Line, tell

GIB = 1 << 30
ROUNDS = 200
CYCLES = 100_000
SAMPLE_EVERY = 10_000
WARM_UP = 20_000


def node(gpus: int, each: int, used_bytes: int, first: int = 1000) -> GuardInput:
    """Every process the only one of its container, every container under a cap of 1 GiB."""
    identities, grants, devices = {}, {}, []
    for gpu in range(gpus):
        uuid = f"GPU-{gpu}"
        pids = range(first + gpu * each, first + (gpu + 1) * each)
        for pid in pids:
            container = ContainerId(pod_uid=f"pod-{pid}", container=f"{pid:064x}")
            identities[pid] = Process(
                pid=pid, start_time=pid, cgroup=f"/kubepods/{pid}", container=container, kind=ProcessKind.TENANT
            )
            owner = Owner(namespace="team", uid=container.pod_uid)
            grants[container] = Grant(owner=owner, devices=frozenset({uuid}), caps={uuid: Cap(bytes=GIB)})
        rows = tuple(ProcessEntry(pid=pid, used_bytes=used_bytes) for pid in pids)
        devices.append(Device(uuid=uuid, total_bytes=141 * GIB, rows=rows))
    return GuardInput(devices=tuple(devices), identities=identities, grants=grants)


def bare(inputs: GuardInput) -> dict[tuple[str, str], int]:
    """The least that anyone must do: every row to its container's sum."""
    sums: dict[tuple[str, str], int] = {}
    for device in inputs.devices:
        for row in device.rows or ():
            container = inputs.identities[row.pid].container
            assert container is not None
            key = (container.container, device.uuid)
            sums[key] = sums.get(key, 0) + (row.used_bytes or 0)
    return sums


def milliseconds(*jobs: Callable[[float], object]) -> list[float]:
    """Median CPU time of each job; the jobs in turn, so that a drifting machine slows all of them alike."""
    spent: list[list[float]] = [[] for _ in jobs]
    for number in range(ROUNDS):
        for job, times in zip(jobs, spent, strict=True):
            start = time.process_time_ns()
            job(float(number))
            times.append((time.process_time_ns() - start) / 1e6)
    return [statistics.median(times) for times in spent]


def watcher(inputs: GuardInput) -> Callable[[float], object]:
    """A guard that goes on with its history."""
    history = GuardState()

    def cycle(now: float) -> object:
        nonlocal history
        verdicts, history = evaluate(inputs, history, now)
        return verdicts

    return cycle


def held_kib() -> list[float]:
    """KiB that stay allocated while containers come, offend, are ended and go: sampled over many cycles."""
    crowds = [node(1, 3, used, first=1000 + 10 * turn) for turn, used in enumerate((GIB, 2 * GIB) * 25)]
    history = GuardState()
    samples = []
    tracemalloc.start()
    for number in range(CYCLES):
        _, history = evaluate(crowds[number // 20 % len(crowds)], history, float(number))
        if number >= WARM_UP and number % SAMPLE_EVERY == 0:
            samples.append(tracemalloc.get_traced_memory()[0] / 1024)
    tracemalloc.stop()
    return samples


def lines() -> Iterator[Line]:
    """The figures."""
    calm, over = node(8, 60, GIB), node(8, 60, 2 * GIB)
    ours, worst, plain = milliseconds(watcher(calm), watcher(over), lambda _: bare(calm))
    yield Line(
        f"guard, 8 GPUs with 60 processes each: {ours:.2f} ms of CPU a cycle, {worst:.2f} ms with everyone over the cap;"
        f" bare loop over the rows {plain:.2f} ms; ratio {ours / plain:.1f}",
        {"guard.cycle": ours / plain},
    )
    samples = held_kib()
    yield Line(
        f"guard, memory held over {CYCLES} cycles: {min(samples):.0f} to {max(samples):.0f} KiB, "
        f"the last against the first sample {samples[-1] / samples[0]:.2f} (flat: about 1)",
        {"guard.memory": samples[-1] / samples[0]},
    )


if __name__ == "__main__":
    tell(lines())
