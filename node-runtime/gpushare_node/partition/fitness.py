"""Fitness: whether a GPU may be touched at all, and if not, the named reason. Pure.

Owns every judgement that comes before geometry: faults, indexes, the card, MIG mode. Whether a layout fits is `layout`'s.
"""

from collections.abc import Mapping
from enum import StrEnum

from gpushare_node.core.policy import Card, WantedGpu
from gpushare_node.partition.state import FaultKind, Gpu, Mig, NodeGpus

_MEMORY_TOLERANCE = 0.05
"""Totals of one card differ by one per cent between drivers; cards that share a PCI id differ by a third."""


class UnfitReason(StrEnum):
    """Why nothing is planned for a GPU."""

    GPU_LOST = "GpuLost"
    GPU_UNREADABLE = "GpuUnreadable"
    GPU_COUNT_MISMATCH = "GpuCountMismatch"
    CARD_MISMATCH = "CardMismatch"
    PENDING_FOREIGN_CHANGE = "PendingForeignChange"
    INVALID_LAYOUT = "InvalidLayout"


class UnfitError(Exception):
    """Nothing can be planned for the GPU that is being looked at; the message is the sentence for people."""

    def __init__(self, reason: UnfitReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def check_fault(gpu: Gpu) -> None:
    """Refuses a GPU that does not answer as it should."""
    if gpu.fault is not None:
        raise UnfitError(
            UnfitReason.GPU_LOST if gpu.fault.kind is FaultKind.LOST else UnfitReason.GPU_UNREADABLE, gpu.fault.detail
        )


def find_target(gpu: Gpu, wanted: Mapping[int, WantedGpu], state: NodeGpus) -> WantedGpu:
    """What the policy wants of this GPU, if its index can be trusted.

    Indexes close ranks when a GPU falls off the bus. With other GPUs than the policy's, an index says nothing, unless all
    are to become the same.
    """
    if gpu.index not in wanted:
        raise UnfitError(
            UnfitReason.GPU_COUNT_MISMATCH, f"the policy is for {len(wanted)} GPUs and has no entry for this index"
        )
    if {one.index for one in state.gpus} != wanted.keys() and len({one.instances for one in wanted.values()}) > 1:
        raise UnfitError(
            UnfitReason.GPU_COUNT_MISMATCH,
            f"the policy has unlike layouts for {len(wanted)} GPUs, the node has {len(state.gpus)}: "
            "it is unknown which layout belongs to which GPU",
        )
    return wanted[gpu.index]


def check_card(gpu: Gpu, card: Card) -> None:
    """Refuses a GPU of another model.

    A model is known by its name, which older drivers give without the maker; or by its PCI id, if the memory does not speak
    against it: siblings share ids.
    """
    if gpu.name.removeprefix("NVIDIA ") == card.name.removeprefix("NVIDIA "):
        return
    totals = (gpu.memory_mib, card.memory_mib)
    is_alike = None in totals or _differ_by_little(gpu.memory_mib or 0, card.memory_mib or 0)
    if gpu.pci_device_id not in card.pci_device_ids or not is_alike:
        raise UnfitError(UnfitReason.CARD_MISMATCH, f"this GPU is {gpu.name}; the pool is for {card.name}")


def _differ_by_little(total_mib: int, catalogued_mib: int) -> bool:
    return abs(total_mib - catalogued_mib) <= catalogued_mib * _MEMORY_TOLERANCE


def needs_switch(mig: Mig, *, to: bool) -> bool:
    """Whether MIG mode must be set. Refuses to where somebody else's change, to what nobody here wants, waits for a reset."""
    if mig.pending not in (mig.current, to) and not mig.is_pending_ours:
        word = "on" if mig.pending else "off"
        raise UnfitError(UnfitReason.PENDING_FOREIGN_CHANGE, f"another program requested MIG {word}, pending until a GPU reset")
    return mig.current != to or mig.pending != to
