"""The words for the modes, in a module so light that commands read their choices from it."""

from enum import StrEnum


class Mode(StrEnum):
    """How a pool shares its GPUs."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    PARTITION = "partition"
    VGPU = "vgpu"


MODES = tuple(mode.value for mode in Mode)

VARIANTS = ("exclusive", "mig", "mig-replicas", "partition", "time-slicing", "mps")
"""The words of `modes.VARIANTS`, in their order."""

ON_DEMAND = "on-demand"
"""The layout of GPUs whose MIG instances are made for each claim."""
