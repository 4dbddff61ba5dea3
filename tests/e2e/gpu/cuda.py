"""CUDA: a real process that allocates on a real GPU through the driver's own library, and holds it."""

from tests.support.process_fixtures import ProcessPool, said

PROGRAM = """import ctypes, os, signal, sys, time
uuid, mib, is_deaf = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "deaf"
if is_deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
os.environ["CUDA_VISIBLE_DEVICES"] = uuid
cuda = ctypes.CDLL("libcuda.so.1")
def call(name, *arguments):
    code = getattr(cuda, name)(*arguments)
    if code:
        sys.exit(print(f"{name}: CUDA error {code}", flush=True) or 1)
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
call("cuInit", 0)
call("cuDeviceGet", ctypes.byref(device), 0)
call("cuCtxCreate_v2", ctypes.byref(context), 0, device)
call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(mib << 20))
print("ready", flush=True)
time.sleep(120)
"""


def hold(process_pool: ProcessPool, uuid: str, mib: int, *, is_deaf: bool = False) -> int:
    """The pid of a process that holds so much of this GPU, beside what its context takes. `is_deaf`: it ignores SIGTERM."""
    process = process_pool.start(PROGRAM, uuid, str(mib), "deaf" if is_deaf else "")
    heard = said(process)
    assert heard == "ready", heard or "the CUDA process ended without a word; what it wrote is above"
    return process.pid
