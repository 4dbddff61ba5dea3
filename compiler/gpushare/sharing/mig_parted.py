"""The mig-parted config of a pool's nodes as plain data, named after a hash of its content: equal layouts get equal names.

mig-parted is lenient or fails late, so what it needs is ensured here: profiles with `+`, and every GPU covered once.
"""

from typing import Any

from gpushare import modes
from gpushare.bundle.artifact import content_hash
from gpushare.catalog.cards import Card
from gpushare.intent.types import Layout, Pool

ALL_DISABLED = "all-disabled"
"""The mig-parted config of GPUs without MIG: the name that the operator itself sets on nodes without a label."""

NamedEntries = tuple[str, tuple[dict[str, Any], ...]]
"""A mig-parted config: its name and its entries."""


def mig_parted_config(pool: Pool, card: Card, layouts: tuple[Layout, ...]) -> NamedEntries | None:
    """Return a node's mig-parted config; None if the card does not support MIG, or is not known to.

    Entries have no device filter: a filter that matches nothing is a silent success (mig-parted 0.15), and a node has one
    card model.
    """
    if card.mig is None and card.mig_supported is not True:
        return None
    if not modes.of(pool).is_partitioned:
        return ALL_DISABLED, ({"devices": "all", "mig-enabled": False},)
    gpus: dict[Layout, list[int]] = {}
    for index, layout in enumerate(layouts):
        gpus.setdefault(layout, []).append(index)
    entries = tuple(_mig_parted_entry("all" if len(gpus) == 1 else indexes, layout) for layout, indexes in gpus.items())
    return f"mig-{content_hash(entries)}", entries


def _mig_parted_entry(devices: str | list[int], layout: Layout) -> dict[str, Any]:
    entry: dict[str, Any] = {"devices": devices, "mig-enabled": bool(layout)}
    return entry | {"mig-devices": dict(layout)} if layout else entry
