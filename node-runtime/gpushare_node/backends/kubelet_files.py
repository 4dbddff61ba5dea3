"""KubeletFiles: all that kubelet gave to pods, by device plugins and by claims, whichever of them the node's pool has now.

While a pool changes from one to the other, pods of the former run on, and keep their caps.
"""

from collections.abc import Callable

from gpushare_node.backends.backend import Allocation, Checkpoint
from gpushare_node.contract.struct import Struct, replace


class KubeletFiles(Struct, frozen=False):
    """Reads both. `read_claims` returns None if kubelet has no list of claims. `needs_claims`: the pool's pods have claims."""

    read_devices: Callable[[], Checkpoint]
    read_claims: Callable[[], tuple[Allocation, ...] | None]
    needs_claims: bool
    _last: tuple[Checkpoint, tuple[Allocation, ...] | None, Checkpoint] | None = None

    def read_checkpoint(self) -> Checkpoint:
        """Return both as one checkpoint: the same object as long as nothing changes. CheckpointError if one cannot be read."""
        devices, claims = self.read_devices(), self.read_claims()
        if self._last is not None and self._last[0] is devices and self._last[1] == claims:
            return self._last[2]
        found = replace(
            devices,
            allocations=(*devices.allocations, *(claims or ())),
            is_there=claims is not None if self.needs_claims else devices.is_there,
            has_claims=claims is not None,
        )
        self._last = (devices, claims, found)
        return found
