"""A stand-in for NVIDIA's MPS control program, which the driver lays into containers.

Its daemon is files in the pipe directory: `server`, the server's pid; `percentage` and `limit`, what was set. With `-d` it
starts a server at once, where NVIDIA's waits for the first client; `quit` returns when the server has ended.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.support.fake_nvml import FakeNvml, build

_PROGRAM = """#!/usr/bin/python3 -ISB
import os, pathlib, signal, sys, time
pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])

def start():
    import subprocess
    pathlib.Path(os.environ["CUDA_MPS_LOG_DIRECTORY"], "control.log").touch()
    nowhere = subprocess.DEVNULL
    server = subprocess.Popen(%r, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    pipe.joinpath("server").write_text(f"{server.pid}\\n")

def lives(pid):
    try:
        return pathlib.Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False

def stop():
    pid = (pipe / "server").read_text().strip()
    if lives(pid):
        os.kill(int(pid), signal.SIGTERM)
    while lives(pid):
        time.sleep(0.02)
    for name in ("server", "percentage", "limit"):
        (pipe / name).unlink(missing_ok=True)

def told(name, otherwise):
    file = pipe / name
    return file.read_text() if file.exists() else otherwise

if sys.argv[1:] == ["-d"]:
    sys.exit(start())
if not (pipe / "server").exists():
    sys.exit("Cannot find MPS control daemon process")
match sys.stdin.read().split():
    case ["get_default_active_thread_percentage"]:
        print(told("percentage", "25.0"))
    case ["set_default_active_thread_percentage", percentage]:
        (pipe / "percentage").write_text(f"{float(percentage):.1f}")
    case ["get_server_list"]:
        print((pipe / "server").read_text().strip())
    case ["get_default_device_pinned_mem_limit", _]:
        print(told("limit", "3840M"))
    case ["set_default_device_pinned_mem_limit", _, limit]:
        (pipe / "limit").write_text(limit)
    case ["quit"]:
        stop()
    case _:
        sys.exit("unknown command")
"""
INSIDE = "/usr/bin/nvidia-cuda-mps-control"

_SMI = f"""#!{sys.executable} -I
import sys, pynvml
_, _, uuid, _, mode = sys.argv
pynvml.nvmlInit()
pynvml.nvmlDeviceSetComputeMode(pynvml.nvmlDeviceGetHandleByUUID(uuid), {{"DEFAULT": 0, "EXCLUSIVE_PROCESS": 3}}[mode])
"""


def write_program(folder: Path, server: Sequence[str] = ()) -> Path:
    """The control program. `server`: the command of its server, for where the daemon itself is started."""
    program = folder / "nvidia-cuda-mps-control"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text(_PROGRAM % (list(server),))
    program.chmod(0o755)
    return program


def write_driver(folder: Path, fake_nvml: FakeNvml) -> None:
    """What a daemon of these GPUs runs: the control program, with a server to start, and the one that sets compute modes."""
    state = fake_nvml.environment["GPUSHARE_FAKE_NVML"]
    server = (str(build.tenant()), "--state", state, "--gpu", "0", "--mib", "30", "--comm", "nvidia-cuda-mps-server")
    write_program(folder, server)
    (folder / "nvidia-smi").write_text(_SMI)
    (folder / "nvidia-smi").chmod(0o755)


def end_servers(root: Path) -> None:
    """As the end of a daemon's container ends what it has left."""
    for file in root.glob("*/*/pipe/server"):
        with suppress(ProcessLookupError):
            os.kill(int(file.read_text()), signal.SIGKILL)
        file.unlink()
