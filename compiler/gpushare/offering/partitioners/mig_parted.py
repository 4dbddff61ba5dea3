"""The configs of mig-parted, which mig-manager applies to the GPUs of a node.

mig-parted is lenient or fails late, so what it needs is ensured here: profiles with `+`, and every GPU covered once.
"""

from collections.abc import Mapping
from typing import Any

from gpushare.bundle.artifact import content_hash
from gpushare.facts.catalog.cards import Card
from gpushare.intent.types import Layout, Pool
from gpushare.offering import modes
from gpushare_node.contract.struct import Struct


class MigConfig(Struct):
    """One mig-parted config: its name (a label value) and its entries."""

    name: str
    entries: tuple[Mapping[str, Any], ...]


ALL_DISABLED = MigConfig(name="all-disabled", entries=({"devices": "all", "mig-enabled": False},))
"""The config of GPUs without MIG. The operator itself sets this name on nodes without a label."""


def config(pool: Pool, card: Card, layouts: tuple[Layout, ...]) -> MigConfig | None:
    """Return a node's mig-parted config; None if the card does not support MIG, or is not known to.

    Entries have no device filter: a filter that matches nothing is a silent success (mig-parted 0.15), and a node has one
    card model.
    """
    if card.mig is None and card.mig_supported is not True:
        return None
    if not modes.of(pool).is_partitioned:
        return ALL_DISABLED
    gpus: dict[Layout, list[int]] = {}
    for index, layout in enumerate(layouts):
        gpus.setdefault(layout, []).append(index)
    entries = tuple(_entry("all" if len(gpus) == 1 else indexes, layout) for layout, indexes in gpus.items())
    return MigConfig(name=f"mig-{content_hash(entries)}", entries=entries)


def _entry(devices: str | list[int], layout: Layout) -> dict[str, Any]:
    entry: dict[str, Any] = {"devices": devices, "mig-enabled": bool(layout)}
    return entry | {"mig-devices": dict(layout)} if layout else entry
