"""A full node costs in proportion to its processes. `make bench` has the figures; this only stops a blow-up."""

import itertools
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

from gpushare_node.adapters.procs.processes import ProcessIdentity
from gpushare_node.enforce.identities import ROUNDS
from tests.node.enforce.enforcement import EnforcementFixture, container_id, pod_uid
from tests.support import scale
from tests.support.costs import grows_in_line
from tests.support.fake_nvml import FakeNvml
from tests.support.process_fixtures import ProcessPool, stat_line, systemd_path

GPUS, EACH = 8, 500 if scale.is_long else 160
CYCLES = 4
"""In a row: the first reads the processes that were not there in the cycle before."""
PID = 1_000_000
NO_INSTANCE = 0xFFFFFFFF


@pytest.mark.failure_case(72)
def test_cycle_cost_is_proportional_to_the_number_of_processes(
    tmp_path: Path, fake_nvml: FakeNvml, process_pool: ProcessPool
) -> None:
    gpus = [{"indexes": list(range(GPUS)), "mig": False, "instances": []}]
    enforcement = EnforcementFixture(tmp_path, fake_nvml, process_pool, gpusPerNode=GPUS, gpus=gpus)
    for number in range(GPUS * (EACH + EACH // 4)):
        enforcement.fake_proc.show(PID + number, systemd_path(pod_uid(number % 80), container_id(number % 80)))
        enforcement.fake_proc.fake(PID + number, "stat", stat_line(PID + number))
    for pod in range(80):
        enforcement.admit(pod, f"pod-{pod}", pod % GPUS)
    uses = itertools.cycle((40, 41, 42))

    def job(each: int) -> Callable[[], None]:
        def cycles() -> None:
            for _ in range(CYCLES):
                show(fake_nvml, next(uses), each)
                enforcement.run()

        return cycles

    assert grows_in_line(job, EACH)
    job(EACH)()
    assert len(enforcement.metric("container_gpu_memory_used_bytes{")) == 80


def show(fake_nvml: FakeNvml, used_mib: int, each: int) -> None:
    """Others than in a look at another number, and each uses so much now: what has not changed since would cost less."""
    first = PID if each == EACH else PID + GPUS * EACH
    for gpu in range(GPUS):
        fake_nvml.clear(gpu)
        fake_nvml.unattributed(gpu, used_mib)
        mine = range(first + gpu, first + GPUS * each, GPUS)
        fake_nvml.put_raw(gpu, [(pid, used_mib << 20, NO_INSTANCE, NO_INSTANCE) for pid in mine])


def test_rows_of_ended_processes_cost_one_look_each(enforcement: EnforcementFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no search, however many processes the tenants have that the driver does not list."""
    listed, dead = range(PID, PID + 120), range(PID + 120, PID + 140)
    enforcement.admit(0, "pod-0")
    for pid in (*listed, *dead, *range(PID + 140, PID + 300)):
        enforcement.fake_proc.show(pid, systemd_path(pod_uid(0), container_id(0)))
        enforcement.fake_proc.fake(pid, "stat", stat_line(pid))
    enforcement.fake_nvml.put_raw(0, [(pid, 8 << 20, NO_INSTANCE, NO_INSTANCE) for pid in (*listed, *dead)])
    enforcement.run(3)
    for pid in dead:
        enforcement.fake_proc.hide(pid)
    enforcement.run(ROUNDS)
    looked: list[int] = []
    look = enforcement.processes.look

    def count(pids: Iterable[int]) -> Mapping[int, ProcessIdentity]:
        looked.extend(own := list(pids))
        return look(own)

    monkeypatch.setattr(enforcement.processes, "look", count)
    enforcement.run(ROUNDS)
    assert len(looked) <= (len(dead) + 1) * ROUNDS + len(listed)
    assert "GPUMemoryOverCap" not in enforcement.told.reasons("pod-0")
