"""MPS on a real GPU: its limit on pinned memory, what the driver lists of its clients, and that no client is signalled."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare.intent.types import Mps
from gpushare.offering import shares
from gpushare_node.adapters.procs.linux import LinuxProcesses
from gpushare_node.adapters.procs.mps import ControlProgram, HostMpsControl
from gpushare_node.guard.process_list import Mps as Reachability
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.compiler.resolved.builders import pool
from tests.e2e.gpu.conftest import OneGpu
from tests.e2e.gpu.cuda import DEAF, HELD_SECONDS, HOLD, hold, start
from tests.e2e.gpu.mps_daemon import PIPE, control, open_daemon
from tests.node.enforce.enforcement import EnforcementFixture, container_id, pod_uid
from tests.support.process_fixtures import ProcessPool, said, systemd_path, tell

LIMIT_MIB = 4096
CAP_MIB = 2048
"""A lower one, which only the node runtime enforces."""


@pytest.fixture(autouse=True)
def folder(whole: GpuInfo) -> Iterator[Path]:
    """That of the MPS daemon, which gives every client the limit."""
    with open_daemon(whole.uuid) as folder:
        control(f"set_default_device_pinned_mem_limit 0 {LIMIT_MIB}M")
        yield folder
        print(*(file.read_text() for file in (folder / "log").glob("*.log")), sep="\n")


def test_the_limit_refuses_and_the_driver_lists_clients(
    process_pool: ProcessPool, whole: GpuInfo, session: Session, capsys: pytest.CaptureFixture[str]
) -> None:
    modest = hold(process_pool, "0", LIMIT_MIB // 4)
    assert start(process_pool, "0", HOLD, str(LIMIT_MIB + 512))[1] == "cuMemAlloc_v2: CUDA error 2"
    full, largest = start(process_pool, "0", LARGEST, str(LIMIT_MIB))
    rows = {row.pid: (row.used_bytes or 0) >> 20 for row in session.read_device(whole.uuid).rows or ()}
    with capsys.disabled():
        print(f"\nMPS, limit {LIMIT_MIB} MiB: a client allocates {largest} MiB, its row has {rows.get(full.pid)} MiB")
    assert rows.get(modest, 0) >= LIMIT_MIB // 4
    assert 0 < int(largest) <= LIMIT_MIB
    served = pool(Mps(replicas=2))
    assert rows.get(full.pid, 0) <= LIMIT_MIB + shares.tolerance_mib(served, LIMIT_MIB), "a client at its limit is over its cap"


@pytest.fixture
def mps(folder: Path, processes: LinuxProcesses) -> HostMpsControl:
    return HostMpsControl(processes, root=folder)


@pytest.fixture
def processes() -> LinuxProcesses:
    return LinuxProcesses()


def test_the_daemon_answers_every_question_of_the_runtime(
    process_pool: ProcessPool, mps: HostMpsControl, folder: Path, whole: GpuInfo
) -> None:
    hold(process_pool, "0", 64)
    daemon = ControlProgram(folder / PIPE)
    print({line: daemon.ask(line) for line in ("get_server_list", "get_default_active_thread_percentage")})
    (server,) = daemon.servers()
    print(daemon.ask(f"get_server_status {server}"), daemon.ask(f"get_default_device_pinned_mem_limit {whole.index}"))
    assert (mps.state(), mps.faults()) == (Reachability.REACHABLE, frozenset())
    assert mps.limit_mib(whole.index) == LIMIT_MIB


def test_the_pod_of_a_client_over_its_cap_is_evicted_and_no_client_is_signalled(
    tmp_path: Path, folder: Path, process_pool: ProcessPool, whole: GpuInfo
) -> None:
    enforcement = EnforcementFixture(
        tmp_path,
        OneGpu(whole.uuid),  # type: ignore[arg-type]
        process_pool,
        share={"capMiB": CAP_MIB},
        enforcement={"mechanism": "watcher"},
        mode="mps",
        profile="mps-01234567",
    )
    try:
        ended, neighbour = (start(process_pool, "0", DEAF + BUSY, size)[0] for size in ("2048", "512"))
        (server,) = ControlProgram(folder / PIPE).servers()
        enforcement.fake_proc.show(server, "/system.slice/mps.service")
        enforcement.mps = HostMpsControl(enforcement.processes, root=folder)
        enforcement.start()
        for number, (name, process) in enumerate({"greedy": ended, "modest": neighbour}.items(), start=1):
            enforcement.admit(number, name)
            enforcement.fake_proc.show(process.pid, systemd_path(pod_uid(number), container_id(number)))
        enforcement.run(20)
        print("\n".join(event.message for event in enforcement.told.events))
        assert enforcement.told.reasons("greedy")[0] == "GPUMemoryOverCap"
        assert enforcement.told.reasons("modest") == []
        assert [pod.name for pod in enforcement.told.evicted][:1] == ["greedy"]
        works_on(ended)
        works_on(neighbour)
    finally:
        enforcement.enforcer.close()


def works_on(process: "subprocess.Popen[str]") -> None:
    """Its kernels of now still end, without an error."""
    tell(process, "")
    assert said(process) == "works"


BUSY = """import select
size = ctypes.c_size_t(int(sys.argv[2]) << 20)
context(); memory = allocate(int(sys.argv[2])); ready()
while True:
    call("cuMemsetD8_v2", memory, 1, size); call("cuCtxSynchronize")
    if select.select([sys.stdin], [], [], 0)[0]:
        sys.stdin.readline()
        call("cuMemsetD8_v2", memory, 1, size); call("cuCtxSynchronize")
        ready("works")
"""
"""Keeps the GPU at work, and says so when it is asked."""
LARGEST = f"""context()
size = int(sys.argv[2])
while cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size << 20)):
    size -= 2
ready(size)
time.sleep({HELD_SECONDS})
"""
"""Holds the most that it may allocate at once, in steps of 2 MiB."""
