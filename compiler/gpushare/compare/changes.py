"""What a comparison says: changes of pools, GPUs, capacity, nodes and quotas, as plain values. Computes nothing but sums."""

from collections.abc import Iterable
from enum import StrEnum

from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileChange, SettingChange
from gpushare.core.record import Record


class Change(StrEnum):
    """What happens to a pool, by what it costs.

    REPARTITION: GPU layouts, MIG mode or the card. RELABEL: resources, replicas or names without a new layout. POLICY: only
    what the node runtime reads (caps, enforcement, rollout, namespaces) or which nodes belong to the pool.
    """

    NONE = "none"
    NEW = "new"
    GONE = "gone"
    RELABEL = "relabel"
    REPARTITION = "repartition"
    POLICY = "policy"


class Problem(StrEnum):
    """Why a quota is no longer what it was meant to be."""

    EXCEEDS = "exceeds"
    VANISHED = "vanished"


class Amount(Record):
    """A number before and after; None when it is not known. What a side does not have is 0."""

    before: int | None
    after: int | None


class ResourceChange(Record):
    """One extended resource: per node of a pool, and in total. 0 where a side does not offer it."""

    name: str
    per_node: Amount
    total: Amount


class GpuChange(Record):
    """Instances of one GPU of a node, as (profile, start), and what becomes of them."""

    index: int
    kept: tuple[tuple[str, int], ...] = ()
    destroyed: tuple[tuple[str, int], ...] = ()
    created: tuple[tuple[str, int], ...] = ()


class Move(Record):
    """A named node that changes pools; None stands for no pool, and as a source also for a pool that selects by labels."""

    node: str
    source: str | None
    target: str | None
    disturbed: int


class PoolChange(Record):
    """One pool. `disturbed` counts shares at most, `touched` nodes whose GPUs or labels change; None when unknown.

    `successor` is the new pool that selects exactly the nodes of a pool that is gone; `selector_changes` says that other nodes
    may belong to the pool from now on.
    """

    name: str
    change: Change
    cards: tuple[str | None, str | None]
    nodes: Amount
    resources: tuple[ResourceChange, ...]
    gpus: tuple[GpuChange, ...] = ()
    disturbed_per_node: int = 0
    disturbed: int | None = 0
    touched: int | None = 0
    successor: str | None = None
    selector_changes: bool = False


class Outage(Record):
    """One pool's nodes that go out of service: how many, how many at once, for how long each.

    `seconds` is without tenants; with tenants a node waits for them up to `drain_seconds` more, in service. None: not known.
    """

    pool: str
    nodes: int | None
    at_once: int | None
    seconds: int
    drain_seconds: int
    on_busy: str

    @property
    def rounds(self) -> int | None:
        """How many times `at_once` nodes go out."""
        return None if self.nodes is None or not self.at_once else -(-self.nodes // self.at_once)


class QuotaChange(Record):
    """What one namespace may hold of one resource, None for no limit, and what is wrong with it."""

    namespace: str
    resource: str
    before: int | None
    after: int | None
    capacity: int | None
    problem: Problem | None = None


class Comparison(Record):
    """The whole difference. `pools` and `capacity` are sorted by name and hold what does not change too.

    `mig_strategies` are gpu-operator's one before and after, "" where every profile states its own, None without the operator.
    A change of it restarts the device plugin of every node at once, whatever the rollout says. `files` are all that differ in
    the bundles, `effects` what that means for those who run there, `outages` which nodes go out of service. `intent` are the
    fields that differ, where both sides are intents.
    """

    pools: tuple[PoolChange, ...]
    capacity: tuple[tuple[str, Amount], ...]
    moves: tuple[Move, ...]
    quotas: tuple[QuotaChange, ...]
    mig_strategies: tuple[str | None, str | None] = (None, None)
    files: tuple[FileChange, ...] = ()
    effects: tuple[Effect, ...] = ()
    outages: tuple[Outage, ...] = ()
    intent: tuple[SettingChange, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: where files were compared, whether the bundles are equal but for comments."""
        if self.files:
            return False
        same = all(amount.before == amount.after for _, amount in self.capacity)
        alike = same and not self.moves and not self.quotas and not self.changes_mig_strategy
        return alike and all(pool.change is Change.NONE for pool in self.pools)

    @property
    def changes_mig_strategy(self) -> bool:
        """Whether gpu-operator gets another mig.strategy."""
        before, after = self.mig_strategies
        return before is not None and after is not None and before != after

    @property
    def disturbed(self) -> int | None:
        """Pods disturbed at most, over all pools. None with another driver: tenants leave the nodes whose driver changes."""
        return None if self.changes_driver else total(pool.disturbed for pool in self.pools)

    @property
    def touched(self) -> int | None:
        """Nodes whose GPUs or labels change, over all pools; None with another driver, which takes nodes out too."""
        return None if self.changes_driver else total(pool.touched for pool in self.pools)

    @property
    def changes_driver(self) -> bool:
        """Whether gpu-operator gets another driver, or other settings of it."""
        return any(effect.kind is EffectKind.DRIVER for effect in self.effects)

    @property
    def is_configmap_only(self) -> bool:
        """Whether something changes, and no GPU, no label of a node, no pod that runs or will be created is affected."""
        if not all(effect.is_harmless for effect in self.effects) or not all(file.is_configmap for file in self.files):
            return False
        kinds = {pool.change for pool in self.pools}
        moving = self.moves or any(pool.selector_changes for pool in self.pools)
        return not self.is_empty and kinds <= {Change.NONE, Change.POLICY} and not moving and not self.changes_mig_strategy


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum; None as soon as one of them is not known."""
    sum_ = 0
    for number in numbers:
        if number is None:
            return None
        sum_ += number
    return sum_
