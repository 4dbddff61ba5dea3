"""A full node costs in proportion to its processes. `make bench` has the figures; this only stops a blow-up."""

import itertools
from collections.abc import Callable
from pathlib import Path

import pytest

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
