"""ModeTraits: what the rest of the compiler asks of a mode. The defaults are those of whole GPUs that nothing divides.

Also the variants in which modes divide a card for a demand, and how many nodes that then needs. Every user asks for the
smallest share that provides what it needs, as `simulation.choice` has it: a container requests one resource, and gets no share
of another one that happens to be free.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any, ClassVar, Generic, TypeVar

from gpushare import vendors
from gpushare.core.prices import Price
from gpushare.core.units import MIB, show_bytes
from gpushare.core.wording import mib
from gpushare.facts.catalog.cards import Card, DeviceProfile, VgpuType
from gpushare.intent.types import Goal, Interval, Layout, LayoutGroup, Mode, Pool, Sharing
from gpushare_node.contract.policy import Mechanism
from gpushare_node.contract.struct import Struct, content_of, replace

MAX_REPLICAS = 1024
"""How many replicas an intent may ask for (schemas/intent.v1.json)."""

MAX_SIZES = 4
"""How many different sizes one demand may have: the search tries every size on every profile of every layout."""

UNKNOWN_MEMORY = "the memory of the card is not known"


class MemoryIsolation(StrEnum):
    """What keeps a container off the memory of others: `hardware`, or the `cap` to which the node runtime holds it."""

    HARDWARE = "hardware"
    CAP = "cap"


class FaultIsolation(StrEnum):
    """Whom a GPU fault of a container can end: no other (`hardware`), others if the device fails (`process`), all (`none`)."""

    HARDWARE = "hardware"
    PROCESS = "process"
    NONE = "none"


class Need(Struct):
    """`users` containers that need `memory_bytes` each. `users` None: as many as fit."""

    memory_bytes: int
    users: int | None = None

    @property
    def memory_mib(self) -> int:
        """The memory in MiB, rounded up: caps are whole MiB."""
        return -(-self.memory_bytes // MIB)


class Demand(Struct):
    """What must fit on nodes with `gpus_per_node` GPUs of one card. `nodes` None: as many as are needed.

    `needs` have different sizes, the largest first; only a single one may have unknown users, and then `nodes` is known.
    `in_hardware`: only modes that isolate memory in hardware are wanted. `described` is the card's entry of `spec.cards`, if
    the catalogue lacks it; `price` that of an hour of one GPU, if it is known.
    """

    card: Card
    described: Mapping[str, Any] | None = None
    needs: tuple[Need, ...]
    gpus_per_node: int = 1
    nodes: int | None = None
    in_hardware: bool = False
    price: Price | None = None


class Variant(Struct):
    """One way of sharing a card: a mode, with or without replicas, and what it isolates.

    `divide` returns what can serve a demand, or why nothing can; `vendors` are those whose cards it divides.
    """

    word: str
    divide: Callable[[Demand], list[Sharing] | str]
    memory: MemoryIsolation
    faults: FaultIsolation
    vendors: frozenset[str] = frozenset({"nvidia"})

    def ways(self, demand: Demand) -> list[Sharing] | str:
        """Return what can serve a demand, or why nothing can, for a card of any vendor."""
        if demand.card.vendor not in self.vendors:
            return f"{vendors.of(demand.card).name} has no {self.word}"
        return self.divide(demand)


def too_small(what: str, usable_mib: int, need: Need) -> str:
    """Return that the largest share is smaller than the need."""
    return f"{what} has {mib(max(usable_mib, 0))} for a user, less than {show_bytes(need.memory_bytes)}"


def most_caps(memory_mib: int, need: Need) -> int:
    """Return into how many equal caps of whole MiB the memory can be divided, if each is at least the need."""
    return min(max(memory_mib, 0) // need.memory_mib, MAX_REPLICAS)


Shares = tuple[tuple[int, int], ...]
"""(bytes that one user may use, number of shares) of one node, larger devices first: the last of equal bytes is smallest."""


def _asked(shares: Sequence[tuple[int, int]], memory_bytes: int) -> int | None:
    """Return the place of the share that a user asks for; None if none provides as much."""
    large = [(provided, -place) for place, (provided, _) in enumerate(shares) if provided >= memory_bytes]
    return -min(large)[1] if large else None


def per_node(shares: Shares, memory_bytes: int) -> int:
    """Return how many shares a node has for users who need so much."""
    place = _asked(shares, memory_bytes)
    return 0 if place is None else shares[place][1]


def nodes_for(shares: Shares, needs: tuple[Need, ...]) -> int | None:
    """Return how many nodes all users need; None if no share provides what one of them needs."""
    users = Counter[int]()
    for need in needs:
        place = _asked(shares, need.memory_bytes)
        if place is None:
            return None
        users[place] += need.users or 0
    return max(-(-number // shares[place][1]) for place, number in users.items())


S = TypeVar("S", bound=Sharing)


class ModeTraits(Generic[S]):
    """The traits of a mode, and those of one pool that has it."""

    mode: ClassVar[Mode]

    description: ClassVar[str]
    """What users of a pool read about the mode."""

    pool_name: ClassVar[str]
    """What a pool is called in an intent that gpushare writes."""

    starter_card: ClassVar[str]
    """The card of a starter intent."""

    variants: ClassVar[tuple[Variant, ...]]

    vendors: ClassVar[frozenset[str]] = frozenset({"nvidia"})
    """Whose cards have it: keys of `VENDORS`."""

    takes_claims: ClassVar[bool] = True
    """Whether a DRA driver offers it, too: device plugins offer every mode."""

    settings: ClassVar[tuple[str, ...]] = ("rename", "placement")
    """The fields of `sharing` that do not say how devices are divided."""

    is_partitioned: ClassVar[bool] = False
    """Whether GPUs can be divided into MIG instances."""

    has_daemon: ClassVar[bool] = False
    """Whether MPS daemons divide all memory of a device evenly. A daemon restarts with its config, which ends its clients."""

    uncounted_mib: ClassVar[int] = 0
    """How much more than the memory that the daemon's limit counts the driver may report of a container."""

    serves_vms: ClassVar[bool] = False
    """Whether virtual machines get the GPUs, and containers nothing: the node runtime and admission take no part."""

    replication_key: ClassVar[str] = "timeSlicing"
    """The section of the device plugin's config in which devices are replicated; empty if the mode has no replicas."""

    mechanisms: ClassVar[frozenset[Mechanism]] = frozenset({Mechanism.AUTO, Mechanism.DRIVER, Mechanism.WATCHER})
    """What can enforce a cap."""

    card_facts: ClassVar[tuple[tuple[str, str], ...]] = ()
    """Facts of the card on which the mode relies: (key in the catalogue, words) pairs."""

    replica_limit: ClassVar[str] = "an intent has at most {} replicas"
    """What limits the replicas of a device."""

    def __init__(self, pool: Pool, sharing: S) -> None:
        self.pool, self.sharing = pool, sharing

    @classmethod
    def missing(cls, card: Card) -> tuple[str, str] | None:  # noqa: ARG003 - every card has whole GPUs
        """Return what the mode needs and the card lacks, and the modes to take instead; None if it lacks nothing."""
        return None

    @classmethod
    def most_replicas(cls, card: Card) -> int:  # noqa: ARG003 - as above
        """Return how many replicas of a device are possible on the card."""
        return MAX_REPLICAS

    @property
    def variant(self) -> Variant:
        """Which of the mode's variants the pool has."""
        return self.variants[0]

    @property
    def mig_strategy(self) -> str | None:
        """The MIG strategy that the pool's nodes need; None if any works."""
        return None

    @property
    def interval(self) -> Interval | None:
        """How long turns on a GPU are; None: as the GPU driver has them."""
        return None

    @property
    def goal(self) -> Goal | None:
        """What the compiler resolves to a layout; None if nothing is left to resolve."""
        return None

    @property
    def is_on_demand(self) -> bool:
        """Whether instances are made for each claim: a layout is all places for them on a GPU, more than fit at once."""
        return False

    @property
    def profiles(self) -> tuple[str, ...]:
        """The MIG profiles of such instances that the user wrote; empty for all."""
        return ()

    @property
    def written(self) -> tuple[tuple[LayoutGroup, ...], Layout]:
        """The layouts that the user wrote, as (groups by GPU index, layout of all GPUs): at least one of them is empty."""
        return (), ()

    @property
    def leftover(self) -> str:
        """What an entry of `layouts` says of GPUs that the others leave out."""
        return "layout: none"

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """The GPU indexes of each entry of `layouts`; empty without that field."""
        return tuple(group.gpus for group in self.written[0])

    def layouts(self, card: Card, pinned: Layout | None = None) -> tuple[Layout, ...] | None:  # noqa: ARG002 - as above
        """Return the layout of each GPU index of a node, in canonical order; the empty layout is a whole GPU.

        `pinned` is what the pool's goal was resolved to before and takes precedence over resolving it again. None if the goal
        cannot be reached, an index is not covered exactly once or the card lacks a profile: the rules report why. None, too, if
        nothing is offered to containers.
        """
        return ((),) * self.pool.gpus_per_node

    @property
    def partition_modes(self) -> tuple[tuple[str, str], ...]:
        """The compute and memory modes of partitions that the user wrote, in the order of `groups`; empty for other modes."""
        return ()

    @property
    def is_named_by_mode(self) -> bool:
        """Whether the resource of a partition has the name of its mode."""
        return False

    def vgpu_type(self, card: Card) -> VgpuType | None:  # noqa: ARG002 - as above
        """Return the type of the vGPUs that virtual machines get; None for containers, or if the card lacks the type."""
        return None

    @property
    def kernel(self) -> tuple[int, int] | None:
        """The version of the nodes' kernel, as far as the mode depends on it and the intent states it."""
        return None

    def replicas_of(self, profile: DeviceProfile | None) -> int:
        """Return how many shares a device is divided into. If GPUs are partitioned, only instances are, never whole GPUs."""
        if self.is_partitioned and profile is None:
            return 1
        replicas = self.sharing.replicas
        return replicas if isinstance(replicas, int) else dict(replicas).get(profile.name if profile else "", 1)

    def with_settings(self, other: Sharing) -> Sharing:
        """Return another way to share with this pool's settings, as far as it has them."""
        own, has = content_of(self.sharing), content_of(other)
        return replace(other, **{name: own[name] for name in self.settings if name in own and name in has})

    def notes(self, card: Card) -> Iterator[str]:
        """Yield the limits that the pool meets, in words."""
        if self.sharing.replicas == self.most_replicas(card):
            yield self.replica_limit.format(self.sharing.replicas)


AnyTraits = ModeTraits[Any]
