"""A full node in a day's churn: the number of series and the page's size depend on what is on the node now, not on the past.

The processes have pids that the machine does not use, in a /proc of the test: nothing is signalled, and the caps only warn.
"""

import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.node.enforce.enforcement import MAPPED, SHARED, EnforcementFixture, container_id, pod, pod_uid
from tests.support import scale
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool, stat_line, systemd_path

GPUS, SHARES = 8, 56
GENERATIONS = 50 if scale.is_long else 7
"""The last 32 kills are kept: five generations are more."""
PAUSE = 24 * 3600 / 50
"""Seconds between two generations. Pods that vanish are remembered for an hour: those of three generations."""
CONTAINERS = GPUS * SHARES
CYCLES = 4
FIRST_PID = 4_000_000
NO_INSTANCE = 0xFFFFFFFF
WITHIN, OVER = 300, 800
"""MiB; the cap is between them."""
PER_CONTAINER, PER_GPU, CONSTANT = 4, 8, 250
"""The bound: so many series for each container on a device, for each GPU, and for the node."""
MAX_BYTES = 400 * CONTAINERS + 200 * CONSTANT


class Churn:
    """The node, whose pods are all replaced in each generation. The first of each GPU is over its cap."""

    def __init__(self, folder: Path, fake_nvml: FakeNvml, process_pool: ProcessPool) -> None:
        self.fake_nvml = fake_nvml
        gpus = [{"indexes": list(range(GPUS)), "mig": False, "instances": []}]
        self.enforcement = EnforcementFixture(
            folder,
            fake_nvml,
            process_pool,
            gpusPerNode=GPUS,
            gpus=gpus,
            share={"replicas": SHARES, "capMiB": 700},
            enforcement={"action": "warn"},
        )

    def replace(self, generation: int) -> None:
        """Other pods with other names and other processes; the former ones have ended."""
        first = generation * CONTAINERS
        for number in range(max(0, first - CONTAINERS), first):
            shutil.rmtree(self.enforcement.fake_proc.root / str(FIRST_PID + number))
        for number in range(first, first + CONTAINERS):
            pid, mirror = FIRST_PID + number, self.enforcement.fake_proc
            mirror.fake(pid, "stat", stat_line(pid))
            mirror.fake(pid, "cgroup", f"0::{systemd_path(pod_uid(number), container_id(number))}\n")
            mirror.fake(pid, "maps", MAPPED)
            mirror.fake(pid, "comm", "python3\n")
        self.enforcement.list.known = tuple(pod(f"pod-{number}", number) for number in range(first, first + CONTAINERS))
        entries = [
            {
                "PodUID": pod_uid(number),
                "ContainerName": "main",
                "ResourceName": SHARED,
                "DeviceIDs": {"-1": [f"{self.fake_nvml.uuid(number % GPUS)}::{number // GPUS % SHARES}"]},
            }
            for number in range(first, first + CONTAINERS)
        ]
        self.enforcement.checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}}))
        for gpu in range(GPUS):
            self.fake_nvml.clear(gpu)
            self.fake_nvml.unattributed(gpu, WITHIN * (SHARES - 1) + OVER)
            pids = range(FIRST_PID + first + gpu, FIRST_PID + first + CONTAINERS, GPUS)
            self.fake_nvml.put_raw(
                gpu, [(pid, (WITHIN if pid != pids[0] else OVER) << 20, NO_INSTANCE, NO_INSTANCE) for pid in pids]
            )

    def live(self) -> None:
        """The pods run for a while, and each of those over its cap loses a process."""
        self.enforcement.run(CYCLES)
        self.enforcement.clock.sleep(PAUSE)
        metrics = self.enforcement.metrics
        for one in self.enforcement.list.known[:GPUS]:
            metrics.kills.add("SIGKILL", "exited_kill", "over-cap")
            metrics.note_kill((one.namespace, one.name, "main"), "over-cap")


def families(text: str) -> Counter[str]:
    """How many series each metric has on a page."""
    return Counter(re.split(r"[{ ]", line)[0].removeprefix("gpushare_") for line in text.splitlines() if line[0] != "#")


@pytest.fixture
def churn(fake_nvml: FakeNvml, process_pool: ProcessPool) -> Iterator[Churn]:
    """In memory: tens of thousands of files, and a state directory that is synced in each generation."""
    with TemporaryDirectory(dir="/dev/shm") as folder:
        yield Churn(Path(folder), fake_nvml, process_pool)


def test_a_days_churn_adds_no_series(churn: Churn) -> None:
    seen = []
    for generation in range(GENERATIONS):
        churn.replace(generation)
        churn.live()
        text = churn.enforcement.metrics.registry.text()
        found = families(text)
        assert {name: found[name] for name in found if name.startswith("container_") and "exempt" not in name} == {
            "container_gpu_memory_used_bytes": CONTAINERS,
            "container_gpu_memory_cap_bytes": CONTAINERS,
            "container_over_cap": CONTAINERS,
        }
        assert found["last_kill_info"] == min(32, GPUS * (generation + 1))
        assert found.total() <= PER_CONTAINER * CONTAINERS + PER_GPU * GPUS + CONSTANT
        assert len(text.encode()) <= MAX_BYTES
        seen.append(found)
    full = seen[32 // GPUS :]
    assert len(full) > 2
    assert all(found == full[0] for found in full)
    assert f"gpushare_over_cap_total {GPUS * GENERATIONS}" in text.splitlines(), "the first of each GPU was over its cap"
    named = set(re.findall(r'gpushare_container_.*pod="([^"]+)"', text))
    assert named == {f"pod-{number}" for number in range(CONTAINERS * (GENERATIONS - 1), CONTAINERS * GENERATIONS)}
