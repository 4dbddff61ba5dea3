"""MPS on a real GPU: its daemon's limit on pinned memory holds, and the driver lists clients with their memory."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpushare.intent.types import Mps
from gpushare.sharing import caps
from gpushare_node.vendors.driver import GpuInfo
from gpushare_node.vendors.nvidia.session import Session
from tests.compiler.resolved.builders import pool
from tests.e2e.gpu.cuda import HELD_SECONDS, HOLD, hold, start
from tests.support.process_fixtures import ProcessPool, open_process_pool

CONTROL = "nvidia-cuda-mps-control"
LIMIT_MIB = 2048


def control(line: str) -> str:
    return subprocess.run([CONTROL], input=f"{line}\n", capture_output=True, text=True, check=True, timeout=30).stdout


@pytest.fixture
def process_pool(_daemon: None) -> Iterator[ProcessPool]:
    with open_process_pool() as everyone:
        yield everyone


@pytest.fixture
def _daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: GpuInfo) -> Iterator[None]:
    """A daemon of this GPU alone, that gives every client the limit. The compute mode stays as it is."""
    assert shutil.which(CONTROL), f"{CONTROL} is not on PATH"
    for variable, folder in (("CUDA_MPS_PIPE_DIRECTORY", "pipe"), ("CUDA_MPS_LOG_DIRECTORY", "log")):
        (tmp_path / folder).mkdir()
        monkeypatch.setenv(variable, str(tmp_path / folder))
    daemon = dict(os.environ) | {"CUDA_VISIBLE_DEVICES": whole.uuid}
    subprocess.run([CONTROL, "-d"], env=daemon, check=True, timeout=30)
    try:
        control(f"set_default_device_pinned_mem_limit 0 {LIMIT_MIB}M")
        yield
    finally:
        control("quit -t 5")
        print(*(file.read_text() for file in (tmp_path / "log").glob("*.log")), sep="\n")


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
    assert rows.get(full.pid, 0) <= LIMIT_MIB + caps.tolerance_mib(served, LIMIT_MIB), "a client at its limit is over its cap"


LARGEST = f"""context()
size = int(sys.argv[2])
while cuda.cuMemAlloc_v2(ctypes.byref(ctypes.c_uint64()), ctypes.c_size_t(size << 20)):
    size -= 2
ready(size)
time.sleep({HELD_SECONDS})
"""
"""Holds the most that it may allocate at once, in steps of 2 MiB."""
