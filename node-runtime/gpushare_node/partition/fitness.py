"""Fitness: whether the runtime may change a GPU at all, and if not, the reason. Pure.

Owns every check that comes before geometry: faults, indexes, the card, MIG mode. `layout` and `placement` check whether a
layout fits.
"""

from collections.abc import Mapping

from gpushare_node.contract.policy import DesiredGpu, DesiredPartition, ExpectedCard, Partitioner
from gpushare_node.contract.reasons import ConditionReason
from gpushare_node.partition.state import FaultKind, Gpu, Mig, Modes, NodeGpus

_MEMORY_TOLERANCE = 0.05
"""Totals of one card differ by one per cent between drivers; cards that share a PCI id differ by a third."""


class UnfitError(Exception):
    """Nothing can be planned for this GPU; the message is the sentence for people."""

    def __init__(self, reason: ConditionReason, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


def check_fault(gpu: Gpu) -> None:
    """Raise UnfitError if the GPU has a fault."""
    if gpu.fault is not None:
        raise UnfitError(
            ConditionReason.GPU_LOST if gpu.fault.kind is FaultKind.LOST else ConditionReason.GPU_UNREADABLE, gpu.fault.detail
        )


def find_target(gpu: Gpu, desired: Mapping[int, DesiredGpu], state: NodeGpus) -> DesiredGpu:
    """Return what the policy wants of this GPU; UnfitError if its index cannot be trusted.

    When a GPU falls off the bus, the driver numbers the remaining ones again without a gap. If the node's GPUs differ from the
    policy's, an index is therefore meaningless, unless all GPUs get the same layout.
    """
    if gpu.index not in desired:
        raise UnfitError(
            ConditionReason.GPU_COUNT_MISMATCH, f"the policy is for {len(desired)} GPUs and has no entry for this index"
        )
    is_uniform = len({(one.instances, one.partition, one.on_demand) for one in desired.values()}) == 1
    if {one.index for one in state.gpus} != desired.keys() and not is_uniform:
        raise UnfitError(
            ConditionReason.GPU_COUNT_MISMATCH,
            f"the policy has different layouts for {len(desired)} GPUs, the node has {len(state.gpus)}: "
            "it is unknown which layout belongs to which GPU",
        )
    return desired[gpu.index]


def check_card(gpu: Gpu, card: ExpectedCard) -> None:
    """Raise UnfitError if the GPU is another model than the policy's card.

    A model is identified by its name, which older drivers return without the vendor; or by its PCI id, if the memory size
    agrees: related models share ids.
    """
    if gpu.name.removeprefix("NVIDIA ") == card.name.removeprefix("NVIDIA "):
        return
    totals = (gpu.memory_mib, card.memory_mib)
    is_alike = None in totals or _differ_by_little(gpu.memory_mib or 0, card.memory_mib or 0)
    if gpu.pci_device_id not in card.pci_device_ids or not is_alike:
        raise UnfitError(ConditionReason.CARD_MISMATCH, f"this GPU is {gpu.name}; the pool is for {card.name}")


def _differ_by_little(total_mib: int, catalogued_mib: int) -> bool:
    return abs(total_mib - catalogued_mib) <= catalogued_mib * _MEMORY_TOLERANCE


def needs_switch(mig: Mig, *, to: bool) -> bool:
    """Whether MIG mode must be set. UnfitError if a change that another program requested, to another mode, is pending."""
    if mig.pending not in (mig.current, to) and not mig.is_pending_ours:
        word = "on" if mig.pending else "off"
        raise UnfitError(
            ConditionReason.PENDING_FOREIGN_CHANGE, f"another program requested MIG {word}, pending until a GPU reset"
        )
    return mig.current != to or mig.pending != to


def needs_modes(modes: Modes | None, *, to: DesiredPartition, by: Partitioner) -> bool:
    """Whether the GPU's modes must change. UnfitError if the driver offers no such ones, or if no program changes them."""
    if modes is None:
        raise UnfitError(ConditionReason.INVALID_LAYOUT, f"the policy requires {to.word}; this GPU has no partitions")
    if (modes.compute, modes.memory) == (to.compute, to.memory):
        if modes.devices != to.devices:
            text = f"the driver divides it by {to.word} into {modes.devices} devices, the policy into {to.devices}"
            raise UnfitError(ConditionReason.INVALID_LAYOUT, text)
        return False
    for mode, offered in ((to.compute, modes.available_compute), (to.memory, modes.available_memory)):
        if offered and mode not in offered:
            text = f"the policy requires {to.word}; the driver does not offer {mode}, but {', '.join(offered)}"
            raise UnfitError(ConditionReason.INVALID_LAYOUT, text)
    if by is not Partitioner.CONFIG_MANAGER:
        raise UnfitError(ConditionReason.PARTITION_MISMATCH, f"it has {modes.word}; the pool is for {to.word}")
    return True
