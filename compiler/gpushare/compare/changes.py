"""The result of a comparison: changes of pools, GPUs, capacity, nodes and quotas, as plain values. Computes only sums."""

from enum import StrEnum

from gpushare.compare.effects import Effect, EffectKind
from gpushare.compare.files import FileDiff, SettingChange
from gpushare.core.units import total
from gpushare.vendors import DEFAULT
from gpushare_node.contract.struct import Struct


class Change(StrEnum):
    """What happens to a pool, by how disruptive it is.

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
    """Why a quota no longer has the intended effect."""

    EXCEEDS = "exceeds"
    VANISHED = "vanished"


class Amount(Struct):
    """A number before and after; None if it is not known, 0 for what a side does not have."""

    before: int | None
    after: int | None


class ResourceChange(Struct):
    """One extended resource: per node of a pool, and in total. 0 if a side does not offer it."""

    name: str
    per_node: Amount
    total: Amount


class CapChange(Struct):
    """What one container may use of a share, in MiB; None for no cap, or where the side does not offer the share.

    `mixed`: on one device, how many containers may run that started under the former cap, and how many under the new one, where
    both together may use more than the device's `memory_mib`; `mixed_mib` is what they may use. None: never more.
    """

    resource: str
    profile: str | None
    cap_mib: Amount
    is_offered_twice: bool = False
    mixed: Amount | None = None
    mixed_mib: int = 0
    memory_mib: int | None = None


class GpuChange(Struct):
    """The instances of one GPU of a node, as (profile, start): kept, destroyed and created ones."""

    index: int
    kept: tuple[tuple[str, int], ...] = ()
    destroyed: tuple[tuple[str, int], ...] = ()
    created: tuple[tuple[str, int], ...] = ()


class Move(Struct):
    """A named node that changes pools; None means no pool, and as a source also a pool that selects by labels."""

    node: str
    source: str | None
    target: str | None
    disturbed: int


class PoolChange(Struct):
    """One pool. `disturbed`: how many shares are lost at most; `touched`: nodes whose GPUs or labels change; None: unknown.

    `successor` is the new pool that selects exactly the nodes of a removed pool; `selector_changes` is true if other nodes may
    belong to the pool from now on. `actions` are what happens above a cap, before and after.
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
    caps: tuple[CapChange, ...] = ()
    actions: tuple[str | None, str | None] = (None, None)


class Start(Struct):
    """What holds a change back: `is_paused`, or the next window, which `opens_at` seconds since 1970; None: not known."""

    is_paused: bool = False
    opens_at: float | None = None
    opening: str = ""


class Outage(Struct):
    """One pool's nodes that go out of service: how many, how many at once, for how long each.

    `seconds` is without tenants; a node with tenants first waits for them up to `drain_seconds`, in service. None: not known.
    `start` is None if it may begin now; `is_bound`: `seconds` is the most that it may take, as
    nothing was measured on GPUs of the `vendor`.
    """

    pool: str
    nodes: int | None
    at_once: int | None
    seconds: int
    drain_seconds: int
    is_bound: bool = False
    vendor: str = DEFAULT.word
    on_busy: str
    start: Start | None = None

    @property
    def rounds(self) -> int | None:
        """How many times `at_once` nodes go out of service."""
        return None if self.nodes is None or not self.at_once else -(-self.nodes // self.at_once)


class QuotaChange(Struct):
    """How much of one resource one namespace may use, None for no limit, and what is wrong with the quota."""

    namespace: str
    resource: str
    before: int | None
    after: int | None
    capacity: int | None
    problem: Problem | None = None


class CostChange(Struct):
    """What an hour of a pool's GPUs costs; None if it is not known, 0 for what a side does not have."""

    pool: str
    before: float | None
    after: float | None


class CostChanges(Struct):
    """What an hour of all GPUs costs, by pool, sorted by name."""

    currency: str
    pools: tuple[CostChange, ...]

    @property
    def before(self) -> float | None:
        """The sum before; None if a pool's cost is not known."""
        return total(one.before for one in self.pools)

    @property
    def after(self) -> float | None:
        """The sum after."""
        return total(one.after for one in self.pools)


class Comparison(Struct):
    """The whole difference. `pools` and `capacity` are sorted by name and contain unchanged entries too.

    `mig_strategies` are gpu-operator's before and after, "" if every profile states its own, None without the operator. A
    change of it restarts the device plugin of every node at once, whatever the rollout settings are. `files` are all files that
    differ in the bundles, `effects` the consequences for running and new pods, `outages` the nodes that go out of service.
    `intent` are the fields that differ, if both sides are intents. `costs` is None if no prices are known.
    """

    pools: tuple[PoolChange, ...]
    capacity: tuple[tuple[str, Amount], ...]
    moves: tuple[Move, ...]
    quotas: tuple[QuotaChange, ...]
    mig_strategies: tuple[str | None, str | None] = (None, None)
    files: tuple[FileDiff, ...] = ()
    effects: tuple[Effect, ...] = ()
    outages: tuple[Outage, ...] = ()
    intent: tuple[SettingChange, ...] = ()
    costs: CostChanges | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes: if files were compared, whether the bundles are equal except for comments."""
        if self.files or self.effects:
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
        """How many pods are disturbed at most, over all pools; None where all nodes' tenants may lose their GPUs."""
        return None if self.disrupts_all else total(pool.disturbed for pool in self.pools)

    @property
    def begun(self) -> frozenset[str | None]:
        """The pools where nodes may begin what they still hold back, and otherwise no pod is disturbed."""
        return frozenset(one.pool for one in self.effects if one.kind is EffectKind.BEGINS)

    @property
    def touched(self) -> int | None:
        """How many nodes' GPUs or labels change, over all pools; None where all nodes may be disrupted."""
        return None if self.disrupts_all else total(pool.touched for pool in self.pools)

    @property
    def disrupts_all(self) -> bool:
        """Whether gpu-operator gets another driver, other settings of it or none, or a GitOps tool releases the nodes."""
        return any(effect.kind in _OF_ALL_NODES for effect in self.effects)

    @property
    def is_configmap_only(self) -> bool:
        """Whether something changes, but no GPU, no label of a node and no running or future pod is affected."""
        if not all(effect.is_harmless for effect in self.effects) or not all(file.is_configmap for file in self.files):
            return False
        kinds = {pool.change for pool in self.pools}
        moving = self.moves or any(pool.selector_changes for pool in self.pools)
        return not self.is_empty and kinds <= {Change.NONE, Change.POLICY} and not moving and not self.changes_mig_strategy


_OF_ALL_NODES = frozenset({EffectKind.DRIVER, EffectKind.DRIVERLESS, EffectKind.RELEASED})
