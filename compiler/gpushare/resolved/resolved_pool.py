"""ResolvedPool: what the pools for containers and those for virtual machines have in common once they are resolved."""

from collections.abc import Mapping
from typing import Any

from gpushare.facts import vendors
from gpushare.facts.catalog.cards import Card
from gpushare.facts.vendors.vendor import GpuVendor
from gpushare.intent.types import Mode, Pool
from gpushare_node.contract.struct import Struct


class ResolvedPool(Struct):
    """One pool of the intent and its card. `terms` are Kubernetes nodeSelectorTerms of the nodes that it owns."""

    pool: Pool
    card: Card
    terms: tuple[Mapping[str, Any], ...]

    @property
    def vendor(self) -> GpuVendor:
        """Whose GPUs the pool has."""
        return vendors.of(self.card)

    @property
    def name(self) -> str:
        """The pool's name."""
        return self.pool.name

    @property
    def mode(self) -> Mode:
        """The pool's mode."""
        return self.pool.mode

    @property
    def nodes(self) -> int | None:
        """How many nodes capacity is reported for; None if unknown."""
        return self.pool.nodes.count
