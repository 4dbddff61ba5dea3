"""What must fit, and what an answer is: Demand, Option, Unfit, Sizing. Plain values; computes nothing of a card."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gpushare.catalog.cards import Card
from gpushare.core.record import Record
from gpushare.core.units import MIB
from gpushare.intent.types import Layout, Mig, Pool
from gpushare.sharing.shares import DeviceClass, split_wanted

MAX_SIZES = 4
"""How many different sizes one demand may have: the search tries every size on every profile of every layout."""


class Variant(StrEnum):
    """The ways of sharing that are compared, from the simplest: the modes, and MIG with and without replicas."""

    EXCLUSIVE = "exclusive"
    MIG = "mig"
    MIG_REPLICAS = "mig-replicas"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class MemoryIsolation(StrEnum):
    """What keeps a container off the memory of others: `hardware`, or the `cap` to which the node runtime holds it."""

    HARDWARE = "hardware"
    CAP = "cap"


class FaultIsolation(StrEnum):
    """Whom a GPU fault of a container can end: no other (`hardware`), others if the device fails (`process`), all (`none`)."""

    HARDWARE = "hardware"
    PROCESS = "process"
    NONE = "none"


class Need(Record):
    """`users` containers that need `memory_bytes` each. `users` None: as many as fit."""

    memory_bytes: int
    users: int | None = None

    @property
    def memory_mib(self) -> int:
        """The memory in MiB, rounded up: caps are whole MiB."""
        return -(-self.memory_bytes // MIB)


class Demand(Record):
    """What must fit on nodes with `gpus_per_node` GPUs of one card. `nodes` None: as many as are needed.

    `needs` have different sizes, the largest first; only a single one may have unknown users, and then `nodes` is known.
    `in_hardware`: only modes that isolate memory in hardware are wanted. `described` is the card's entry of `spec.cards`, if
    the catalogue lacks it.
    """

    card: Card
    described: Mapping[str, Any] | None = None
    needs: tuple[Need, ...]
    gpus_per_node: int = 1
    nodes: int | None = None
    in_hardware: bool = False


class Grant(Record):
    """Shares of one kind of device. `cap_mib` is None if the device is not shared; `provides_bytes` is what a user may use."""

    kind: DeviceClass
    cap_mib: int | None
    provides_bytes: int


class Option(Record):
    """One way to share. `pool` is what its intent says.

    `nodes_needed` is for all users; `users` is how many fit on the given nodes, or on those needed; None if they need
    different sizes. `wasted_mib` is the memory of the nodes needed (`total_mib`) that no user asked for, None if the card's
    memory is not known. `suffices` is None if the number of nodes or users is open.
    """

    variant: Variant
    pool: Pool
    grants: tuple[Grant, ...]
    nodes_needed: int
    users: int | None
    suffices: bool | None
    memory_isolation: MemoryIsolation
    fault_isolation: FaultIsolation
    total_mib: int | None
    wasted_mib: int | None
    unconfirmed: tuple[str, ...]
    notes: tuple[str, ...]


def layout_of(sharing: Mig) -> Layout:
    """Return the one layout of an option's GPUs."""
    return split_wanted(sharing.wanted)[1] if isinstance(sharing.wanted, tuple) else ()


class Unfit(Record):
    """A way to share that cannot serve the demand on any number of nodes, and why."""

    variant: Variant
    reason: str


class Sizing(Record):
    """The answer: `options` the best first within each variant, what cannot serve, the best one and why it is."""

    demand: Demand
    options: tuple[Option, ...]
    unfit: tuple[Unfit, ...]
    best: Option | None
    reason: str
