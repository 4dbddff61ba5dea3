"""A real CUDA process over its cap is warned, asked to end and killed; one beside it, under its cap, lives on.

Driver, processes, memory and signals are real. Made up are the cgroups of the two, and what API server and kubelet know.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.e2e.gpu.conftest import OneGpu
from tests.e2e.gpu.cuda import hold
from tests.node.enforce.enforcement import EnforcementFixture, await_end, container_id, lives, pod_uid
from tests.support.process_fixtures import ProcessPool, systemd_path
from tests.support.waiting import wait_for

CAP_MIB = 2048
GREEDY_MIB, MODEST_MIB = 3072, 256
"""A context takes some hundred MiB beside."""

STEPS = ["GPUMemoryOverCap", "GPUProcessKilled", "GPUProcessKilled"]
MAX_CYCLES = 20


@pytest.fixture
def enforcement(tmp_path: Path, whole: GpuInfo, process_pool: ProcessPool) -> Iterator[EnforcementFixture]:
    # The watcher alone: a limit of the driver's would be set on cgroups that are made up.
    made = EnforcementFixture(
        tmp_path,
        OneGpu(whole.uuid),  # type: ignore[arg-type]
        process_pool,
        deadline=30.0,
        share={"capMiB": CAP_MIB},
        enforcement={"mechanism": "watcher"},
    )
    yield made
    made.enforcer.close()


def place(enforcement: EnforcementFixture, number: int, pid: int) -> None:
    """Show the process in this pod's container."""
    enforcement.fake_proc.show(pid, systemd_path(pod_uid(number), container_id(number)))


def test_only_the_real_process_over_its_cap_is_killed(
    enforcement: EnforcementFixture, whole: GpuInfo, session: Session, process_pool: ProcessPool
) -> None:
    before = session.read_device(whole.uuid)
    assert before.total_bytes is not None
    assert before.used_bytes is not None
    free_mib = (before.total_bytes - before.used_bytes) >> 20
    assert free_mib > 2 * (GREEDY_MIB + MODEST_MIB), f"GPU {whole.index} has only {free_mib} MiB free"
    enforcement.admit(1, "greedy")
    enforcement.admit(2, "modest")
    greedy = hold(process_pool, whole.uuid, GREEDY_MIB, is_deaf=True)
    modest = hold(process_pool, whole.uuid, MODEST_MIB)
    place(enforcement, 1, greedy)
    place(enforcement, 2, modest)
    named = {row.pid: row.used_bytes for row in session.read_device(whole.uuid).rows or ()}
    assert {greedy, modest} <= set(named), f"the driver has {sorted(named)}, not {greedy} and {modest}: another PID namespace?"
    assert (named[greedy] or 0) >> 20 >= GREEDY_MIB, "the driver does not tell what a process uses"
    assert (named[modest] or 0) >> 20 < CAP_MIB
    for _ in range(MAX_CYCLES):
        enforcement.run()
        if len(enforcement.told.reasons("greedy")) == len(STEPS):
            break
    await_end(greedy)
    wait_for(lambda: greedy not in {row.pid for row in session.read_device(whole.uuid).rows or ()})
    enforcement.run(2)
    print("\n".join(event.message for event in enforcement.told.events))
    assert enforcement.told.reasons("greedy") == STEPS
    assert enforcement.metric("kills_total{") == ['kills_total{signal="SIGKILL",outcome="exited_kill",reason="over-cap"} 1']
    assert lives(modest)
    assert enforcement.told.reasons("modest") == []
