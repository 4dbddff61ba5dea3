"""What the real driver lists of processes that end, fork or share memory: the guard and the fake driver stand on it."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.e2e.gpu.cuda import hold, start
from tests.support.process_fixtures import ProcessPool, await_exit
from tests.support.waiting import wait_for

MIB = 2048


class Rows:
    """The GPU's process list, in MiB."""

    def __init__(self, session: Session, uuid: str) -> None:
        self.uuid = uuid
        self._session = session

    def read(self) -> dict[int, int]:
        return {row.pid: (row.used_bytes or 0) >> 20 for row in self._session.read_device(self.uuid).rows or ()}

    def used(self) -> int:
        used = self._session.read_device(self.uuid).used_bytes
        assert used is not None
        return used >> 20


@pytest.fixture
def rows(session: Session, whole: GpuInfo) -> Rows:
    return Rows(session, whole.uuid)


def state(pid: int) -> str:
    """The letter of `ps`."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_a_context_takes_memory_of_its_own(rows: Rows, process_pool: ProcessPool, capsys: pytest.CaptureFixture[str]) -> None:
    pids = [hold(process_pool, rows.uuid, 64) for _ in range(8)]
    taken = {rows.read()[pid] - 64 for pid in pids}
    with capsys.disabled():
        print(f"\na context takes {sorted(taken)} MiB")
    assert min(taken) > 0
    assert rows.used() >= sum(rows.read().values()), "more is listed than is in use"


def test_a_killed_process_leaves_the_list_before_it_is_reaped(rows: Rows, process_pool: ProcessPool) -> None:
    pid = hold(process_pool, rows.uuid, MIB)
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: pid not in rows.read())
    assert state(pid) == "Z"


def test_a_process_whose_main_thread_has_ended_is_listed_until_its_threads_end(rows: Rows, process_pool: ProcessPool) -> None:
    process, heard = start(
        process_pool,
        rows.uuid,
        f"threading.Thread(target=lambda: (context(), allocate({MIB}), ready(), time.sleep(60))).start()\n"
        "time.sleep(3)\nctypes.CDLL(None).syscall(60, 0)\n",
    )
    assert heard == "ready"
    wait_for(lambda: state(process.pid) == "Z")
    assert rows.read()[process.pid] >= MIB
    assert list(Path(f"/proc/{process.pid}/fd").iterdir()) == []
    process.kill()
    wait_for(lambda: process.pid not in rows.read())


FORKED = f"""context(); allocate({MIB})
child = os.fork()
if child == 0:
    time.sleep(60)
    os._exit(0)
ready(child)
"""


@pytest.mark.parametrize("then", ["ends", "closes"])
def test_memory_that_a_fork_keeps_is_listed_for_its_dead_parent(rows: Rows, process_pool: ProcessPool, then: str) -> None:
    closing = "[os.close(int(f)) for f in os.listdir('/proc/self/fd') if 'nvidia' in os.path.realpath('/proc/self/fd/' + f)]\n"
    rest = "os._exit(0)" if then == "ends" else f"{closing}time.sleep(3); os._exit(0)"
    parent, heard = start(process_pool, rows.uuid, FORKED + rest)
    child = int(heard)
    try:
        parent.wait()
        assert rows.read()[parent.pid] >= MIB
        assert child not in rows.read()
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    await_exit(child)
    wait_for(lambda: parent.pid not in rows.read())


def test_managed_memory_is_in_use_and_in_no_row(rows: Rows, process_pool: ProcessPool) -> None:
    before = rows.used()
    code = f"""context(); memory = ctypes.c_uint64()
call("cuMemAllocManaged", ctypes.byref(memory), ctypes.c_size_t({MIB} << 20), 1)
call("cuMemsetD8_v2", memory, 1, ctypes.c_size_t({MIB} << 20)); call("cuCtxSynchronize"); ready(); time.sleep(60)
"""
    process, heard = start(process_pool, rows.uuid, code)
    assert heard == "ready"
    assert rows.read()[process.pid] < MIB
    assert rows.used() - before >= MIB


def test_memory_shared_by_ipc_is_its_owners_until_the_owner_ends(rows: Rows, process_pool: ProcessPool) -> None:
    owner, handle = start(
        process_pool,
        rows.uuid,
        f"context(); memory = allocate({MIB}); handle = (ctypes.c_char * 64)()\n"
        "call('cuIpcGetMemHandle', handle, memory); ready(bytes(handle).hex()); time.sleep(60)\n",
    )
    opener, heard = start(
        process_pool,
        rows.uuid,
        """class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_char * 64)]
context(); memory = ctypes.c_uint64()
cuda.cuIpcOpenMemHandle_v2.argtypes = [ctypes.c_void_p, Handle, ctypes.c_uint]
call("cuIpcOpenMemHandle_v2", ctypes.byref(memory), Handle.from_buffer_copy(bytes.fromhex(sys.argv[2])), 1)
ready(); time.sleep(60)
""",
        handle,
    )
    assert heard == "ready"
    assert rows.read()[owner.pid] >= MIB > rows.read()[opener.pid]
    owner.kill()
    owner.wait()
    wait_for(lambda: rows.read()[opener.pid] >= MIB)


def test_rows_agree_with_nvidia_smi(rows: Rows, process_pool: ProcessPool) -> None:
    pid = hold(process_pool, rows.uuid, MIB)
    query = ["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv,noheader,nounits", f"--id={rows.uuid}"]
    told = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    assert {int(line.split(",")[0]): int(line.split(",")[1]) for line in told.splitlines()}[pid] == rows.read()[pid]
