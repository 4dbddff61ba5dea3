"""The processes on the fake GPUs, as a test puts them there. How their rows live and end is told in processes.c."""

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.support.fake_nvml import layout
from tests.support.fake_nvml.state_file import StateFile

Row = tuple[int, int, int, int]
"""pid, used bytes, GPU instance, compute instance: a list row as NVML shows it."""


class Processes(StateFile):
    """Who is on the GPUs, and what of their memory is used."""

    def put(
        self, gpu: int, pid: int, used_mib: int | None, *, gi: int | None = None, ci: int = 0, kind: str = "compute"
    ) -> None:
        """A process uses so much of the GPU, or of an instance of it; None: the driver cannot tell how much.

        Kinds are compute, graphics and mps. The same process can be put once for each kind and instance; again means instead.
        The row of a living process ends with it. A pid that nobody has stays until `take`.
        """
        started = _start_time(pid)
        how = layout.FOLLOWED if started else layout.MADE_UP
        used = layout.UNKNOWN_BYTES if used_mib is None else used_mib << 20
        gi, ci = (layout.NO_INSTANCE, layout.NO_INSTANCE) if gi is None else (gi, ci)
        wanted = layout.VIEWS["row"](
            kinds=layout.KINDS[kind],
            how=how,
            pid=pid,
            gi=gi,
            ci=ci,
            used_bytes=used,
            started=started,
            pid_namespace=_pid_namespace(),
        )
        with self._alone() as state:
            _store(state.gpus[gpu], wanted)

    def put_raw(self, gpu: int, rows: Iterable[Row], *, kind: str = "compute") -> None:
        """More rows, which the lists show exactly as given. They count for no memory."""
        with self._alone() as state:
            for pid, used, gi, ci in rows:
                row = layout.VIEWS["row"](kinds=layout.KINDS[kind], how=layout.RAW, pid=pid, gi=gi, ci=ci, used_bytes=used)
                _append(state.gpus[gpu], row)

    def take(self, gpu: int, pid: int) -> None:
        """The process leaves the GPU. No error if it was not there."""
        with self._alone() as state:
            for row in rows_of(state.gpus[gpu]):
                if row.pid == pid:
                    ctypes.memset(ctypes.addressof(row), 0, ctypes.sizeof(row))

    def clear(self, gpu: int) -> None:
        """All processes leave the GPU."""
        with self._alone() as state:
            ctypes.memset(ctypes.addressof(state.gpus[gpu].rows), 0, ctypes.sizeof(state.gpus[gpu].rows))
            state.gpus[gpu].row_end = 0

    def unattributed(self, gpu: int, mib: int, *, gi: int | None = None) -> None:
        """So much of the used memory belongs to no process."""
        with self._alone() as state:
            owner = state.gpus[gpu] if gi is None else state.gpus[gpu].instances[gi]
            owner.unattributed_bytes = mib << 20

    def race(self, gpu: int, times: int) -> None:
        """The next so many process lists with rows have grown by the time that they are read: INSUFFICIENT_SIZE."""
        with self._alone() as state:
            state.gpus[gpu].races = times


def rows_of(gpu: Any) -> list[Any]:
    return [row for row in gpu.rows[: gpu.row_end] if row.kinds]


def _store(gpu: Any, wanted: Any) -> None:
    """In place of the same process's row of this kind on this instance, or in addition."""

    def key(row: Any) -> tuple[int, ...]:
        return row.pid, row.kinds, row.gi, row.ci, row.pid_namespace

    same = next((row for row in rows_of(gpu) if row.how != layout.RAW and key(row) == key(wanted)), None)
    if same is None:
        _append(gpu, wanted)
    else:
        ctypes.memmove(ctypes.addressof(same), ctypes.addressof(wanted), ctypes.sizeof(wanted))


def _append(gpu: Any, wanted: Any) -> None:
    """Behind all others while there is room, so that the lists keep the order of arrival."""
    holes = (number for number, row in enumerate(gpu.rows) if not row.kinds)
    place = gpu.row_end if gpu.row_end < layout.ROWS else next(holes, None)
    if place is None:
        raise OverflowError(f"more than {layout.ROWS} processes on one GPU")
    ctypes.memmove(ctypes.addressof(gpu.rows[place]), ctypes.addressof(wanted), ctypes.sizeof(wanted))
    gpu.row_end = max(gpu.row_end, place + 1)


def _pid_namespace() -> int:
    return Path("/proc/self/ns/pid").stat().st_ino


def _start_time(pid: int) -> int:
    """Field 22 of /proc/PID/stat; 0 for a process that is not there, or only as a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
