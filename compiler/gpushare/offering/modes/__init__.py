"""The sharing modes: one module for each, with what is true of it alone. Others ask for traits, never for a mode."""

from gpushare.intent.types import Pool
from gpushare.offering.modes.exclusive import ExclusiveTraits
from gpushare.offering.modes.mig import MigTraits
from gpushare.offering.modes.mps import MpsTraits
from gpushare.offering.modes.partition import PartitionTraits
from gpushare.offering.modes.time_slicing import TimeSlicingTraits
from gpushare.offering.modes.traits import AnyTraits, ModeTraits
from gpushare.offering.modes.vgpu import VgpuTraits

MODES: tuple[type[AnyTraits], ...] = (
    ExclusiveTraits,
    MigTraits,
    PartitionTraits,
    TimeSlicingTraits,
    MpsTraits,
    VgpuTraits,
)
"""Every mode, the simplest first."""

VARIANTS = tuple(variant for mode in MODES for variant in mode.variants)
"""The ways of sharing that are compared, from the simplest."""

_BY_WORD = {mode.mode.value: mode for mode in MODES}


def of(pool: Pool) -> AnyTraits:
    """Return the traits of the pool's mode, with the pool's settings."""
    return _BY_WORD[pool.mode.value](pool, pool.sharing)


def named(word: str) -> type[AnyTraits]:
    """Return the traits of the mode that a document names; those of whole GPUs if this gpushare does not know it."""
    return _BY_WORD.get(word, ModeTraits)
