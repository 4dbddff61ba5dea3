"""Mode `time-slicing`: containers take turns on a GPU."""

from gpushare.core.units import MIB
from gpushare.facts.catalog.cards import usable_bytes
from gpushare.intent.types import Interval, Mode, Sharing, TimeSlicing
from gpushare.offering.modes.traits import (
    UNKNOWN_MEMORY,
    Demand,
    FaultIsolation,
    MemoryIsolation,
    ModeTraits,
    Variant,
    most_caps,
    too_small,
)


def _divide(demand: Demand) -> list[Sharing] | str:
    usable, need = usable_bytes(demand.card.memory_mib, None), demand.needs[0]
    if usable is None:
        return UNKNOWN_MEMORY
    replicas = most_caps(usable // MIB, need)
    return [TimeSlicing(replicas=replicas)] if replicas > 1 else too_small("half a GPU", usable // MIB // 2, need)


class TimeSlicingTraits(ModeTraits[TimeSlicing]):
    """The traits of time-slicing."""

    mode = Mode.TIME_SLICING
    description = (
        "Containers share a GPU by time-slicing: a container alone gets all of its compute time."
        " Memory is not isolated in hardware."
    )
    pool_name = "shared"
    starter_card = "t4"
    variants = (Variant(word="time-slicing", divide=_divide, memory=MemoryIsolation.CAP, faults=FaultIsolation.PROCESS),)
    settings = (*ModeTraits.settings, "interval")

    @property
    def interval(self) -> Interval | None:
        """How long turns on a GPU are; None: as the GPU driver has them."""
        return self.sharing.interval
