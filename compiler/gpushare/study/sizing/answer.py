"""What an answer is: Option, Unfit, Sizing. Plain values; computes nothing of a card."""

from gpushare.intent.types import Pool
from gpushare.offering.modes.demand import Demand, Variant
from gpushare.offering.shares import ShareKind
from gpushare_node.contract.struct import Struct


class Grant(Struct):
    """Shares of one kind of device. `cap_mib` is None if the device is not shared; `provides_bytes` is what a user may use."""

    kind: ShareKind
    cap_mib: int | None
    provides_bytes: int


class Option(Struct):
    """One way to share. `pool` is what its intent says.

    `nodes_needed` is for all users; `users` is how many fit on the given nodes, or on those needed; None if they need
    different sizes. `wasted_mib` is the memory of the nodes needed (`total_mib`) that no user asked for, None if the card's
    memory is not known. `suffices` is None if the number of nodes or users is open. `cost_per_hour` is that of the nodes
    needed, None without a price.
    """

    variant: Variant
    pool: Pool
    grants: tuple[Grant, ...]
    nodes_needed: int
    users: int | None
    suffices: bool | None
    total_mib: int | None
    wasted_mib: int | None
    cost_per_hour: float | None
    unconfirmed: tuple[str, ...]
    notes: tuple[str, ...]


class Unfit(Struct):
    """A way to share that cannot serve the demand on any number of nodes, and why."""

    variant: Variant
    reason: str


class Sizing(Struct):
    """The answer: `options` the best first within each variant, what cannot serve, the best one and why it is."""

    demand: Demand
    options: tuple[Option, ...]
    unfit: tuple[Unfit, ...]
    best: Option | None
    reason: str
