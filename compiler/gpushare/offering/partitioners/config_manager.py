"""The profiles of AMD's device-config-manager, which divides the GPUs of a node by the profile that its label names.

The manager takes the GPUs in the order of their indexes, and refuses a profile that does not count every GPU. It does not know
cards: that a pair of modes exists is proved before. Names are content-addressed, because a changed profile of the same name
would divide labelled nodes again at once (device-config-manager v1.3.1, docs/configuration/configmap.md).
"""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import Card, PartitionMode
from gpushare.intent.types import Layout
from gpushare_node.contract.struct import Struct

_WHOLE = ("SPX", "NPS1")
"""What whole GPUs of a card with partitions are: going back to them is a profile too."""


class ManagerConfig(Struct):
    """One profile of the manager: its name, which is the label's value, and its content."""

    name: str
    profile: Mapping[str, Any]


def document(profiles: Mapping[str, Any], stops: Sequence[str]) -> dict[str, Any]:
    """Return the manager's file. It stops the named services of the host, which hold GPUs, while it divides them."""
    return {"gpu-config-profiles": dict(sorted(profiles.items())), "gpuClientSystemdServices": {"names": list(stops)}}


def whole(card: Card) -> PartitionMode | None:
    """Return the mode of whole GPUs; None if nothing divides the card."""
    return next((mode for mode in card.partition_modes if (mode.compute, mode.memory) == _WHOLE), None)


def config(card: Card, layouts: tuple[Layout, ...]) -> ManagerConfig | None:
    """Return the profile of a node with these layouts, whole GPUs included; None if nothing divides the card."""
    if not card.partition_modes:
        return None
    modes = {mode.name: (mode.compute, mode.memory) for mode in card.partition_modes}
    of_gpus = [modes[layout[0][0]] if layout else _WHOLE for layout in layouts]
    runs = [(mode, len(list(gpus))) for mode, gpus in groupby(of_gpus)]
    entries = [{"computePartition": one[0], "memoryPartition": one[1], "numGPUsAssigned": number} for one, number in runs]
    profile = {"skippedGPUs": {"ids": []}, "profiles": entries}
    (compute, memory), *others = [mode for mode, _ in runs]
    word = "mixed" if others else compute
    return ManagerConfig(name=f"{word}-{memory}-{len(layouts)}-{content_hash(profile)}".lower(), profile=profile)
