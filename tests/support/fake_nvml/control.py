"""FakeNvml: the fake GPUs of one node, in the hands of a test.

What a test says here takes effect at once in every process that sees these GPUs.
"""

import ctypes
import functools
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from gpushare.facts.catalog import cards
from tests.support.fake_nvml import instances, layout
from tests.support.fake_nvml.cards import describe_driver, describe_gpu
from tests.support.fake_nvml.faults import Faults
from tests.support.fake_nvml.processes import Processes, rows_of


class FakeNvml(Processes, Faults):
    """One node's GPUs, its driver and the processes on them. GPUs are called by index."""

    @classmethod
    def make(
        cls, folder: Path, card_ids: Sequence[str] = ("a100-sxm4-40gb",) * 8, *, driver: str = "580.95.05", node: int = 0
    ) -> Self:
        """A new node with these catalogue cards under `folder`, idle, MIG off. `node` tells its UUIDs from another node's."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "fake-nvml"
        _write_sparse(path, _pages(tuple(card_ids), driver, node))
        path.chmod(0o666)  # tenants are anybody
        made = cls(path)
        made._link()
        return made

    def show(self) -> list[dict[str, Any]]:
        """All GPUs with what is on them, for people. Processes are those of the state file, the dead among them too."""
        return [
            {
                "uuid": self.uuid(gpu),
                "mode": self.mode(gpu),
                "instances": self.instances(gpu),
                "limits": self.limits(gpu),
                "processes": [(row.pid, row.used_bytes >> 20, row.gi) for row in rows_of(self._state.gpus[gpu])],
            }
            for gpu in range(self._state.gpu_count)
        ]

    def mode(self, gpu: int) -> tuple[bool, bool]:
        """MIG mode: current and pending."""
        own = self._state.gpus[gpu]
        return bool(own.mig_current), bool(own.mig_pending)

    def set_mode(self, gpu: int, current: bool, pending: bool | None = None) -> None:
        """Put the MIG mode so, without conditions. A change of the current mode clears the GPU and voids its handles."""
        with self._alone() as state:
            own = state.gpus[gpu]
            if own.mig_current != current:
                _switch(own, current)
            own.mig_pending = current if pending is None else pending

    def reset_blocked(self, gpu: int, code: int, times: int = 1) -> None:
        """The next so many mode changes (-1: all) stay pending with this activation status: 19 IN_USE, 16 RESET_REQUIRED."""
        self._set(gpu, blocked_code=code, blocked_times=times)

    def add_instance(self, gpu: int, profile_id: int, start: int, cis: int = 1) -> int:
        """A GPU instance as another tool has left it, its slices dealt out evenly to so many compute instances; its id.

        Is no call of the program: not in the log. ValueError where hardware has no such place free.
        """
        with self._alone() as state:
            return instances.add(state, gpu, profile_id, start, cis)

    def reboot(self) -> None:
        """The node starts again without processes, instances and limits. Pending MIG modes count; Hopper and later lose MIG."""
        with self._alone() as state:
            for own in state.gpus[: state.gpu_count]:
                _switch(own, bool(own.mig_pending and own.mig_survives_reboot))
                for table in (own.rows, own.limits):
                    ctypes.memset(ctypes.addressof(table), 0, ctypes.sizeof(table))
                own.row_end = own.unattributed_bytes = own.recovery_action = 0

    def limits(self, gpu: int) -> dict[str, int]:
        """The hard limit in bytes of each cgroup that has one."""
        return {limit.cgroup.decode(): limit.hard_bytes for limit in self._state.gpus[gpu].limits if limit.cgroup}

    def compute_mode(self, gpu: int) -> int:
        """NVML's number of the compute mode."""
        return int(self._state.gpus[gpu].compute_mode)

    def set_compute_mode(self, gpu: int, mode: int) -> None:
        """As another tool has left it."""
        self._set(gpu, compute_mode=mode)

    def set_fabric(self, gpu: int, state: int, status: int = 0) -> None:
        """How far the fabric manager is: NVML's number of the state, and the code with which it ended."""
        self._set(gpu, fabric_state=state, fabric_status=status)


@functools.lru_cache(maxsize=64)
def _pages(card_ids: tuple[str, ...], driver: str, node: int) -> dict[int, bytes]:
    """The pages of a new state that have anything in them, by offset: most of a state is room for rows."""
    state = layout.VIEWS["state"](magic=layout.CONSTANTS["MAGIC"], size=layout.SIZE, gpu_count=len(card_ids))
    describe_driver(state, driver)
    for index, card in enumerate(card_ids):
        describe_gpu(state.gpus[index], index, cards.load(card), node=node)
    content = memoryview(state).cast("B")
    parts = ((start, bytes(content[start : start + mmap.PAGESIZE])) for start in range(0, layout.SIZE, mmap.PAGESIZE))
    return {start: part for start, part in parts if any(part)}


def _write_sparse(path: Path, pages: dict[int, bytes]) -> None:
    with path.open("wb") as file:
        file.truncate(layout.SIZE)
        for start, part in pages.items():
            file.seek(start)
            file.write(part)


def _switch(gpu: Any, enabled: bool) -> None:
    """What the library's `switch_mode` does."""
    gpu.mig_current = gpu.mig_pending = enabled
    ctypes.memset(ctypes.addressof(gpu.instances), 0, ctypes.sizeof(gpu.instances))
    gpu.compute_mode = 0
    gpu.generation += 1
