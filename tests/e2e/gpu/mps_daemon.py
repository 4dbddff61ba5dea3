"""An MPS daemon of one GPU, with folders of its own. The compute mode of the GPU stays as it is."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CONTROL = "nvidia-cuda-mps-control"
PIPE = "nvidia.com/gpu.shared/pipe"
"""Where the device plugin has it below its folder."""


def control(line: str) -> str:
    return subprocess.run([CONTROL], input=f"{line}\n", capture_output=True, text=True, check=True, timeout=30).stdout


@contextmanager
def open_daemon(gpu: str) -> Iterator[Path]:
    """The folder of a daemon, of which processes that are started in it are clients. `gpu`: its UUID or index."""
    assert shutil.which(CONTROL), f"{CONTROL} is not on PATH"
    # A short path: a socket's may have 107 bytes.
    with tempfile.TemporaryDirectory(prefix="mps-") as name:
        folder = Path(name)
        changed = {"CUDA_MPS_PIPE_DIRECTORY": str(folder / PIPE), "CUDA_MPS_LOG_DIRECTORY": str(folder / "log")}
        for path in changed.values():
            Path(path).mkdir(parents=True)
        os.environ |= changed
        try:
            subprocess.run([CONTROL, "-d"], env=os.environ | {"CUDA_VISIBLE_DEVICES": gpu}, check=True, timeout=30)
            try:
                yield folder
            finally:
                control("quit -t 5")
        finally:
            for variable in changed:
                del os.environ[variable]
