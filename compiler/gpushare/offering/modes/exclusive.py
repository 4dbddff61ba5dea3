"""Mode `exclusive`: whole GPUs, one container each."""

from gpushare.core.units import MIB
from gpushare.facts.catalog.cards import usable_bytes
from gpushare.intent.types import Exclusive, Mode, Sharing
from gpushare.offering.modes.traits import (
    UNKNOWN_MEMORY,
    Demand,
    FaultIsolation,
    MemoryIsolation,
    ModeTraits,
    Variant,
    too_small,
)
from gpushare.vendors import VENDORS


def _divide(demand: Demand) -> list[Sharing] | str:
    usable, need = usable_bytes(demand.card.memory_mib, None), demand.needs[0]
    if usable is None:
        return UNKNOWN_MEMORY
    return [Exclusive()] if usable >= need.memory_bytes else too_small("a GPU", usable // MIB, need)


class ExclusiveTraits(ModeTraits[Exclusive]):
    """The traits of whole GPUs."""

    mode = Mode.EXCLUSIVE
    vendors = frozenset(VENDORS)
    description = "Whole GPUs, one container each."
    pool_name = "whole"
    starter_card = "h100-sxm5-80gb"
    replication_key = ""
    variants = (
        Variant(
            word="exclusive",
            divide=_divide,
            memory=MemoryIsolation.HARDWARE,
            faults=FaultIsolation.HARDWARE,
            vendors=vendors,
        ),
    )
