"""Mode `partition`: AMD's driver divides a GPU into partitions of equal size; a process cannot allocate more than its own has.

A pair of a compute mode and a memory mode is legal if the catalogue has it for the card. The memory mode is one for a node: a
reload of the driver applies it to all GPUs (AMD SMI, docs/conceptual/partition.md).
"""

from collections import Counter
from itertools import chain

from gpushare.core.units import MIB
from gpushare.facts.catalog.cards import Card, DeviceProfile, PartitionMode, usable_bytes
from gpushare.intent.types import Layout, MigStrategy, Mode, Partition, Sharing
from gpushare.offering.modes.traits import Demand, FaultIsolation, MemoryIsolation, ModeTraits, Variant, too_small
from gpushare.vendors import VENDORS

_COMPUTE_MODES = frozenset(mode for vendor in VENDORS.values() for mode in vendor.compute_modes)


def find(card: Card, compute: str, memory: str) -> PartitionMode | None:
    """Return the mode of the card with this pair; None if the catalogue has none."""
    return next((mode for mode in card.partition_modes if (mode.compute, mode.memory) == (compute, memory)), None)


def is_offered(mode: PartitionMode) -> bool:
    """Whether a mode is proposed to those who name none: it divides, is confirmed, and the vendor's programs set it."""
    return mode.partitions > 1 and "mode" not in mode.unconfirmed and mode.compute in _COMPUTE_MODES


def offered(card: Card) -> tuple[PartitionMode, ...]:
    """Return the modes that are proposed; of those with partitions of one size the one that divides memory most.

    AMD validates CPX with NPS4.
    """
    return tuple({(mode.compute, mode.memory_mib): mode for mode in card.partition_modes if is_offered(mode)}.values())


def proposed(card: Card) -> PartitionMode | None:
    """Return the mode with the most partitions of those that are proposed; None if there is none."""
    return max(offered(card), key=lambda mode: mode.partitions, default=None)


def _divide(demand: Demand) -> list[Sharing] | str:
    modes, need = offered(demand.card), demand.needs[0]
    if not demand.card.partition_modes:
        return "the card has no partitions"
    if not modes:
        return "no source confirms the partitions of the card"
    known = [(usable_bytes(mode.memory_mib, None) or 0, mode) for mode in modes]
    fitting = [mode for usable, mode in known if usable >= need.memory_bytes]
    if not fitting:
        return too_small("a partition", max((usable for usable, _ in known), default=0) // MIB, need)
    chosen = max(fitting, key=lambda mode: mode.partitions)
    return [Partition(compute=chosen.compute, memory=chosen.memory)]


class PartitionTraits(ModeTraits[Partition]):
    """The traits of partitions."""

    mode = Mode.PARTITION
    description = "Each GPU is divided into partitions by AMD's driver, one container each, each with memory of its own."
    pool_name = "partitions"
    starter_card = "mi300x"
    takes_claims = False
    vendors = frozenset(word for word, vendor in VENDORS.items() if vendor.compute_modes)
    settings = ("strategy",)
    replication_key = ""
    variants = (
        Variant(
            word="partition",
            divide=_divide,
            memory=MemoryIsolation.HARDWARE,
            faults=FaultIsolation.PROCESS,
            vendors=vendors,
        ),
    )

    @classmethod
    def missing(cls, card: Card) -> tuple[str, str] | None:
        """Return that the card has no partitions."""
        return None if card.partition_modes else ("partitions", "mig" if card.mig else "exclusive")

    @property
    def partition_modes(self) -> tuple[tuple[str, str], ...]:
        """Those of each entry of `layouts`, or of all GPUs."""
        return tuple((one.compute, self.sharing.memory) for one in self.sharing.groups or (self.sharing,))

    @property
    def is_named_by_mode(self) -> bool:
        """Whether the strategy is `mixed`."""
        return self.sharing.strategy is MigStrategy.MIXED

    @property
    def leftover(self) -> str:
        """The mode of the first entry."""
        return f"compute: {self.sharing.groups[0].compute}" if self.sharing.groups else ""

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The GPU indexes of each entry of `layouts`."""
        return tuple(group.gpus for group in self.sharing.groups)

    def layouts(self, card: Card, pinned: Layout | None = None) -> tuple[Layout, ...] | None:  # noqa: ARG002 - no mode is a goal
        """Return the layout of each GPU: so many partitions of one mode. None if the card lacks the pair or a GPU has none."""
        if self.groups and Counter(chain.from_iterable(self.groups)) != Counter(range(self.pool.gpus_per_node)):
            return None
        of_gpu = {index: group.compute for group in self.sharing.groups for index in group.gpus}
        found = [self._layout(card, of_gpu.get(index, self.sharing.compute)) for index in range(self.pool.gpus_per_node)]
        return tuple(layout for layout in found if layout) if all(found) else None

    def _layout(self, card: Card, compute: str) -> Layout | None:
        mode = find(card, compute, self.sharing.memory)
        return None if mode is None else ((mode.name, mode.partitions),)

    def replicas_of(self, profile: DeviceProfile | None) -> int:  # noqa: ARG002 - no partition is shared
        """Return 1: AMD's device plugin offers no partition twice."""
        return 1
