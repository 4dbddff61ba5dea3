"""The state file in Python's hands: mapping, lock, names, and how other programs and pynvml come to it."""

import ctypes
import fcntl
import mmap
import os
import shutil
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.fake_nvml import build, layout


class StateFile:
    """One node's state, open in this process. It takes the same lock as the library does."""

    def __init__(self, path: Path) -> None:
        """Open a state file that `make` has written."""
        self.path = path
        self._missing = build.MEMORY_LIMITS
        self._threads = threading.RLock()
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._file)
        # The mapping lives as long as the view that is made of it.
        self._state: Any = layout.VIEWS["state"].from_buffer(mmap.mmap(self._file, layout.SIZE))
        assert (self._state.magic, self._state.size) == (layout.CONSTANTS["MAGIC"], layout.SIZE), f"{path} is no state file"

    @property
    def environment(self) -> dict[str, str]:
        """What another process must have in its environment to find these GPUs."""
        return {"LD_LIBRARY_PATH": str(self._folder), "GPUSHARE_FAKE_NVML": str(self.path)}

    def load(self) -> None:
        """Make pynvml of this process speak with these GPUs, from its next nvmlInit on."""
        import pynvml  # processes that only put rows or show the node do without it

        os.environ["GPUSHARE_FAKE_NVML"] = str(self.path)
        library = ctypes.CDLL(str(build.library(self._missing)))
        library.fake_nvml_forget()
        pynvml.nvmlLib, pynvml._nvmlLib_refcount = library, 0
        pynvml._nvmlGetFunctionPointer_cache.clear()

    @property
    def _folder(self) -> Path:
        return self.path.parent / "driver"

    def _link(self) -> None:
        """What processes load from now on. Replaced in one step: one of them may be about to load.

        A copy, since a container that has this folder mounted has nothing else.
        """
        self._folder.mkdir(exist_ok=True)
        fresh = self._folder / "fresh"
        shutil.copyfile(build.library(self._missing), fresh)
        fresh.replace(self._folder / build.SONAME)

    @contextmanager
    def _alone(self) -> Iterator[Any]:
        """The state, while no other process or thread looks at it."""
        with self._threads:
            fcntl.flock(self._file, fcntl.LOCK_EX)
            try:
                yield self._state
            finally:
                fcntl.flock(self._file, fcntl.LOCK_UN)

    def uuid(self, gpu: int) -> str:
        """The GPU's UUID."""
        uuid: str = self._state.gpus[gpu].uuid.decode()
        return uuid

    def mig_uuid(self, gpu: int, gi: int, ci: int = 0) -> str:
        """The UUID that the MIG device has now. KeyError if there is none."""
        compute = self._state.gpus[gpu].instances[gi].computes[ci]
        if not compute.exists:
            raise KeyError((gpu, gi, ci))
        uuid: str = compute.uuid.decode()
        return uuid

    def find_device(self, name: str) -> tuple[int, int | None, int | None]:
        """GPU, GPU instance and compute instance of an index, a GPU's UUID or a MIG device's. KeyError if there is none."""
        for index in range(self._state.gpu_count):
            if name in {str(index), self.uuid(index)}:
                return index, None, None
            for gi, _, _, _, _ in self.instances(index):
                for ci, compute in enumerate(self._state.gpus[index].instances[gi].computes):
                    if compute.exists and compute.uuid.decode() == name:
                        return index, gi, ci
        raise KeyError(name)

    def instances(self, gpu: int) -> list[tuple[int, int, int, int, int]]:
        """GPU instances: id, profile id, start, size, number of compute instances."""
        own = self._state.gpus[gpu]
        return [
            (gi, own.profiles[one.profile].id, one.start, one.size, sum(compute.exists for compute in one.computes))
            for gi, one in enumerate(own.instances)
            if one.exists
        ]

    def _set(self, gpu: int, **fields: int) -> None:
        with self._alone() as state:
            for name, value in fields.items():
                setattr(state.gpus[gpu], name, value)
