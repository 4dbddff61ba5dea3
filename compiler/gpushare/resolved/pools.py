"""The resolved pools: what those for containers and those for virtual machines have in common, and the latter."""

from collections.abc import Mapping
from typing import Any

from gpushare import vendors
from gpushare.facts.catalog.cards import Card, VgpuType
from gpushare.intent.types import Mode, Pool
from gpushare.offering import modes
from gpushare.offering.backends import vgpu
from gpushare.offering.backends.vgpu import VgpuConfig
from gpushare.vendors.vendor import GpuVendor
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


class VmPool(ResolvedPool):
    """One pool for virtual machines, resolved."""

    kind: VgpuType
    config: VgpuConfig

    @property
    def resource(self) -> str:
        """The resource that a virtual machine requests."""
        return vgpu.resource(self.vendor, self.kind)

    @property
    def per_node(self) -> int:
        """How many vGPUs a node has."""
        return self.kind.max_count * self.pool.gpus_per_node

    @property
    def total(self) -> int | None:
        """How many vGPUs all nodes have; None if the number of nodes is unknown."""
        return None if self.nodes is None else self.per_node * self.nodes

    @property
    def labels(self) -> dict[str, str]:
        """The labels that a person sets on the pool's nodes."""
        return vgpu.labels(self.vendor, self.config.name)


def resolve_machines(pool: Pool, card: Card, terms: tuple[Mapping[str, Any], ...]) -> VmPool:
    """Return the resolved pool. A ValueError is a bug: the rules accepted a type that the card lacks."""
    kind = modes.of(pool).vgpu_type(card)
    if kind is None:
        raise ValueError(f"pool {pool.name}: no vGPU type")
    return VmPool(pool=pool, card=card, kind=kind, config=vgpu.config(card, kind), terms=terms)
