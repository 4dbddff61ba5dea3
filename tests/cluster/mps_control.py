"""A stand-in for NVIDIA's MPS control program, which the driver lays into containers.

It answers from two files in the daemon's pipe directory: `server`, the server's pid, and `clients`, one pid a line. What it has
ended it writes to `terminated`.
"""

from pathlib import Path

PROGRAM = """#!/usr/bin/python3 -ISB
import os, pathlib, sys
pipe = pathlib.Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"])
clients = (pipe / "clients").read_text().split()
match sys.stdin.read().split():
    case ["get_default_active_thread_percentage"]:
        print("25.0")
    case ["get_server_list"]:
        print((pipe / "server").read_text().strip())
    case ["get_client_list", _]:
        print("\\n".join(clients))
    case ["terminate_client", _, client] if client in clients:
        (pipe / "clients").write_text("\\n".join(one for one in clients if one != client))
        with (pipe / "terminated").open("a") as file:
            file.write(client + "\\n")
        print("Success")
    case ["get_default_device_pinned_mem_limit", _]:
        print("3840M")
    case _:
        sys.exit("unknown command")
"""
INSIDE = "/usr/bin/nvidia-cuda-mps-control"


def write_program(folder: Path) -> Path:
    """The control program."""
    program = folder / "nvidia-cuda-mps-control"
    folder.mkdir(parents=True, exist_ok=True)
    program.write_text(PROGRAM)
    program.chmod(0o755)
    return program
