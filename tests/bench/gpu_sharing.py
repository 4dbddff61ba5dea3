"""`python -m tests.bench.gpu_sharing`, on a machine with a GPU: what processes get done together, in turns and under MPS.

Prints the total throughput of 2, 4 and 8 processes relative to one alone, for a kernel that fills the GPU and for one that
fills a tenth of it. Neither the compute mode nor anything else of the GPU is changed.
"""

import subprocess
import sys

from tests.e2e.gpu.cuda import BEGIN
from tests.e2e.gpu.mps_daemon import open_daemon

SECONDS = 4.0
PROCESSES = (1, 2, 4, 8)
GPU = "0"

WORKER = (
    BEGIN
    + r"""PTX = b'''.version 7.0
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
tenths, seconds = int(sys.argv[2]), float(sys.argv[3])
units, out, module, kernel = ctypes.c_int(), ctypes.c_uint64(), ctypes.c_void_p(), ctypes.c_void_p()
device = context()
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
ready()
sys.stdin.readline()
ends, done = time.monotonic() + seconds, 0
while time.monotonic() < ends:
    launch()
    done += 1
ready(done)
"""
)


def throughput(processes: int, tenths: int) -> float:
    """Launches in a second, of all processes together."""
    command = [sys.executable, "-c", WORKER, GPU, str(tenths), str(SECONDS)]
    workers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    for worker in workers:
        assert worker.stdout is not None
        if (heard := worker.stdout.readline().strip()) != "ready":
            raise SystemExit(heard or "a process ended without a word; what it wrote is above")
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    return sum(int(worker.communicate()[0]) for worker in workers) / SECONDS


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
    with open_daemon(GPU):
        tell("under MPS", alone)


if __name__ == "__main__":
    main()
