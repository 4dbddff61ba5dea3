"""What the tests of the library do through real pynvml: sessions, instances, refusals, programs that see the same GPUs."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import byref, c_uint
from typing import Any

import pynvml
import pytest

from tests.support.fake_nvml import FakeNvml
from tests.support.waiting import PATIENCE


@contextmanager
def session() -> Iterator[None]:
    """NVML, initialised."""
    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


@contextmanager
def refused(code: int) -> Iterator[None]:
    """The block must end in this NVML code."""
    with pytest.raises(pynvml.NVMLError) as caught:
        yield
    assert caught.value.value == code


def device(index: int = 0) -> Any:
    return pynvml.nvmlDeviceGetHandleByIndex(index)


def create(handle: Any, profile_id: int, start: int | None = None, size: int = 0) -> Any:
    """A GPU instance, at a place or where the driver likes."""
    if start is None:
        return pynvml.nvmlDeviceCreateGpuInstance(handle, profile_id)
    place = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
    return pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(handle, profile_id, byref(place))


def add_compute(instance: Any, profile: int) -> Any:
    """A compute instance of this profile enum."""
    info = pynvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, profile, 0)
    return pynvml.nvmlGpuInstanceCreateComputeInstance(instance, info.id)


def placements(handle: Any, profile_id: int) -> list[tuple[int, int]]:
    count = c_uint(0)
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, None, byref(count))
    found = (pynvml.c_nvmlGpuInstancePlacement_t * count.value)()
    pynvml.nvmlDeviceGetGpuInstancePossiblePlacements(handle, profile_id, found, byref(count))
    return [(one.start, one.size) for one in found]


def profiles(handle: Any) -> dict[str, Any]:
    """What the driver tells, by name, asked for enum by enum."""
    told = {}
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        try:
            info = pynvml.nvmlDeviceGetGpuInstanceProfileInfo(handle, number)
        except (pynvml.NVMLError_NotSupported, pynvml.NVMLError_InvalidArgument):
            continue
        told[info.name.removeprefix("MIG ")] = info
    return told


def start(fake_nvml: FakeNvml, code: str, before: Sequence[str] = ()) -> "subprocess.Popen[str]":
    """Another Python program that sees the GPUs; `N` in its code is pynvml, initialised. `before`: a command that runs it."""
    program = [*before, sys.executable, "-c", "import pynvml as N\nN.nvmlInit()\n" + code]
    environment = {**os.environ, **fake_nvml.environment}
    return subprocess.Popen(program, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(fake_nvml: FakeNvml, code: str, before: Sequence[str] = ()) -> str:
    """What the program writes; it must end well."""
    out, err = (process := start(fake_nvml, code, before)).communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return out
