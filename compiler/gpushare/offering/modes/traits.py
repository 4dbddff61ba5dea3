"""ModeTraits: what the rest of the compiler asks of a mode. The defaults are those of whole GPUs that nothing divides."""

from collections.abc import Iterator
from typing import Any, ClassVar, Generic, TypeVar

from gpushare.facts.catalog.cards import Card, DeviceProfile, VgpuType
from gpushare.intent.types import Goal, Interval, Layout, LayoutGroup, Mode, Pool, Sharing
from gpushare.offering.modes.demand import MAX_REPLICAS, Variant
from gpushare_node.contract.policy import Mechanism
from gpushare_node.contract.struct import content_of, replace

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
