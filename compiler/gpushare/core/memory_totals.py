"""Sums of GPU memory in MiB: what the GPUs have, what their devices offer, and what the caps permit."""

from collections.abc import Iterable

from gpushare.core.units import total
from gpushare_node.contract.struct import Struct


class MemoryTotals(Struct):
    """Memory in MiB; None if not known. `caps`: what all containers may use together; a device without caps counts once."""

    gpus: int | None
    offered: int | None
    caps: int | None

    @property
    def stranded(self) -> int | None:
        """What no device offers: unused slices, and what MIG itself takes."""
        return None if self.gpus is None or self.offered is None else self.gpus - self.offered

    def of_nodes(self, count: int | None) -> "MemoryTotals":
        """Return the totals of so many nodes, where this is one."""
        numbers = {"gpus": self.gpus, "offered": self.offered, "caps": self.caps}
        return MemoryTotals(**{name: None if one is None or count is None else one * count for name, one in numbers.items()})


UNKNOWN = MemoryTotals(gpus=None, offered=None, caps=None)


def of_node(card_mib: int | None, gpus: int, devices: Iterable[tuple[int | None, int, int | None]]) -> MemoryTotals:
    """Return the totals of a node with so many GPUs. A device is its memory, its replicas, and the cap of each or None."""
    listed = list(devices)
    return MemoryTotals(
        gpus=None if card_mib is None else card_mib * gpus,
        offered=total(memory for memory, _, _ in listed),
        caps=total(memory if cap is None else cap * replicas for memory, replicas, cap in listed),
    )
