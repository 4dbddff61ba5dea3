"""`python -m tests.bench.gpu_sharing`, on a machine with a GPU: what processes get done together, in turns and under MPS.

Prints the total throughput of 2, 4 and 8 processes relative to one alone, for a kernel that fills the GPU and for one that
fills a tenth of it. Neither the compute mode nor anything else of the GPU is changed.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 4.0
PROCESSES = (1, 2, 4, 8)
CONTROL = "nvidia-cuda-mps-control"

WORKER = r"""import ctypes, sys, time
PTX = b'''.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u64 out, .param .u32 turns)
{
  .reg .f32 %f<2>; .reg .u32 %r<3>; .reg .u64 %d<2>; .reg .pred %p;
  mov.f32 %f1, 0f3F800000;
  mov.u32 %r1, 0;
  ld.param.u32 %r2, [turns];
again:
  fma.rn.f32 %f1, %f1, %f1, %f1;
  fma.rn.f32 %f1, %f1, %f1, %f1;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p, %r1, %r2;
  @%p bra again;
  ld.param.u64 %d1, [out];
  st.global.f32 [%d1], %f1;
  ret;
}
\0'''
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(f"{name}: CUDA error {code}")
tenths, seconds = int(sys.argv[1]), float(sys.argv[2])
device, units, out = ctypes.c_int(), ctypes.c_int(), ctypes.c_uint64()
context, module, kernel = (ctypes.c_void_p() for _ in range(3))
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuDeviceGetAttribute", ctypes.byref(units), 16, device)
call("cuModuleLoadData", ctypes.byref(module), PTX)
call("cuModuleGetFunction", ctypes.byref(kernel), module, b"spin")
call("cuMemAlloc_v2", ctypes.byref(out), ctypes.c_size_t(4))
turns = ctypes.c_uint(100_000)
arguments = (ctypes.c_void_p * 2)(*(ctypes.cast(ctypes.byref(one), ctypes.c_void_p) for one in (out, turns)))
blocks = max(1, units.value * tenths // 10)
def launch():
    call("cuLaunchKernel", kernel, blocks, 1, 1, 1024, 1, 1, 0, None, arguments, None)
    call("cuCtxSynchronize")
launch()
print("ready", flush=True)
sys.stdin.readline()
ends, done = time.monotonic() + seconds, 0
while time.monotonic() < ends:
    launch()
    done += 1
print(done, flush=True)
"""


def throughput(processes: int, tenths: int) -> float:
    """Launches in a second, of all processes together."""
    command = [sys.executable, "-c", WORKER, str(tenths), str(SECONDS)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for worker in workers:
        assert worker.stdout is not None
        if worker.stdout.readline().strip() != "ready":
            raise SystemExit("a process has no GPU")
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    return sum(int(worker.communicate()[0]) for worker in workers) / SECONDS


@contextmanager
def mps() -> Iterator[None]:
    """An MPS daemon with folders of its own."""
    with tempfile.TemporaryDirectory() as folder:
        for variable, name in (("CUDA_MPS_PIPE_DIRECTORY", "pipe"), ("CUDA_MPS_LOG_DIRECTORY", "log")):
            Path(folder, name).mkdir()
            os.environ[variable] = f"{folder}/{name}"
        subprocess.run([CONTROL, "-d"], check=True)
        try:
            yield
        finally:
            subprocess.run([CONTROL], input="quit -t 5\n", text=True, check=True, stdout=subprocess.DEVNULL)
            del os.environ["CUDA_MPS_PIPE_DIRECTORY"], os.environ["CUDA_MPS_LOG_DIRECTORY"]


def tell(how: str, alone: dict[int, float]) -> None:
    for tenths, name in ((10, "fills the GPU"), (1, "fills a tenth of it")):
        rates = {count: throughput(count, tenths) for count in PROCESSES}
        base = alone.setdefault(tenths, rates[1])
        told = ", ".join(f"{count}: {rate / base:.2f}" for count, rate in rates.items())
        print(f"{how}, a kernel that {name}: {told} (of {base:.0f} launches a second alone)", flush=True)


def main() -> None:
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    print(subprocess.run(query, text=True, check=True, stdout=subprocess.PIPE).stdout.strip())
    alone: dict[int, float] = {}
    tell("in turns", alone)
    with mps():
        tell("under MPS", alone)


if __name__ == "__main__":
    main()
