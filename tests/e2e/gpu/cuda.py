"""CUDA: real processes that use a real GPU through the driver's own library, without any other."""

import subprocess

from tests.support.process_fixtures import ProcessPool, said

BEGIN = """import ctypes, os, signal, sys, threading, time
os.environ["CUDA_VISIBLE_DEVICES"] = sys.argv[1]
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        print(f"{name}: CUDA error {code}", flush=True)
        os._exit(1)
def context():
    device, made = ctypes.c_int(), ctypes.c_void_p()
    call("cuInit", 0)
    call("cuDeviceGet", ctypes.byref(device), 0)
    call("cuCtxCreate_v2", ctypes.byref(made), 0, device)
    return device
def allocate(mib):
    memory = ctypes.c_uint64()
    call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(mib << 20))
    return memory
def ready(text="ready"):
    print(text, flush=True)
"""
"""What programs begin with: the GPU that their first argument names is the only one that they see."""

HELD_SECONDS = 120
HOLD = f"context(); allocate(int(sys.argv[2])); ready(); time.sleep({HELD_SECONDS})\n"
DEAF = "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"


def start(process_pool: ProcessPool, uuid: str, code: str, *arguments: str) -> "tuple[subprocess.Popen[str], str]":
    """A process that runs this on this GPU, and the line that it says when it is there, or why not."""
    process = process_pool.start(BEGIN + code, uuid, *arguments)
    return process, said(process)


def hold(process_pool: ProcessPool, uuid: str, mib: int, *, is_deaf: bool = False) -> int:
    """The pid of a process that holds so much of this GPU, beside what its context takes. `is_deaf`: it ignores SIGTERM."""
    process, heard = start(process_pool, uuid, DEAF * is_deaf + HOLD, str(mib))
    assert heard == "ready", heard or "the CUDA process ended without a word; what it wrote is above"
    return process.pid
