"""What a plan offers to pods: Supply and its parts, and how they follow from a Plan."""

from collections.abc import Mapping

from gpushare.core.prices import Price
from gpushare.core.record import Record
from gpushare.intent.types import SharePlacement


class DeviceSupply(Record):
    """One device of a node: a GPU or a MIG instance. `slots` are its shares, each of which one container may hold.

    `provides_mib` is what a container with one share may use (None: not known), `milli` which part of its GPU that is, in
    thousandths rounded down.
    """

    gpu: int
    resource: str
    slots: int
    provides_mib: int | None
    milli: int


class PoolSupply(Record):
    """One pool. `nodes` None: as many as the workload needs. `devices` are those of one node, in kubelet's order.

    `namespaces` empty: all may use it. `placement` is how the device plugin chooses among the GPUs of a node.
    """

    name: str
    card: str
    nodes: int | None
    gpus_per_node: int
    gpu_mib: int | None
    devices: tuple[DeviceSupply, ...]
    placement: SharePlacement
    namespaces: frozenset[str]
    is_default: bool
    price: Price | None


class Supply(Record):
    """All pools, by name. `quotas` is (namespace, resource) → the most of it that its pods may request at once."""

    pools: tuple[PoolSupply, ...]
    quotas: Mapping[tuple[str, str], int]
