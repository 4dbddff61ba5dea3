"""What every pool becomes: the Plan, in which nothing is left to decide.

Owns the Plan types and their computation from an Intent that passed the rules; `resolve` is total for those. Placements,
resource names, counts, caps and profile keys are final here, and the renderers only write them down.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpushare.catalog import Card
from gpushare.intent import Intent, Layout, Mode, Pool
from gpushare.mig import Instance


@dataclass(frozen=True, kw_only=True)
class GpuPlan:
    """What one GPU of a node becomes. No instances and `mig_enabled` False: a whole GPU."""

    index: int
    mig_enabled: bool
    instances: tuple[Instance, ...]


@dataclass(frozen=True, kw_only=True)
class DevicePlan:
    """One device that the plugin will offer: a whole GPU (`profile` None) or an instance.

    `memory_mib` is the smallest catalogued memory, None when unknown; `cap_mib` is what one container may use, None for no cap.
    """

    gpu: int
    resource: str
    profile: str | None
    start: int
    size: int
    memory_mib: int | None
    replicas: int
    cap_mib: int | None


@dataclass(frozen=True, kw_only=True)
class ResourcePlan:
    """One extended resource of a node of the pool: how many of it `allocatable` will show."""

    name: str
    per_node: int
    total: int | None


@dataclass(frozen=True, kw_only=True)
class SharingProfile:
    """One device-plugin config. `key` is `<mode>-<8 hex of the content>`; the ConfigMap carries it as `<key>-a` and `<key>-b`."""

    key: str
    config: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class MigConfig:
    """One mig-parted config: its name (a label value) and its entries."""

    name: str
    entries: tuple[Mapping[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class PoolPlan:
    """One pool, resolved.

    `gpus` and `devices` describe one node. `layout_of_goal` is what a goal was resolved to, None where the user gave the
    layout. `tolerance_mib` belongs to each cap: it is computed from it. `terms` are Kubernetes nodeSelectorTerms.
    """

    pool: Pool
    card: Card
    gpus: tuple[GpuPlan, ...]
    devices: tuple[DevicePlan, ...]
    resources: tuple[ResourcePlan, ...]
    profile: SharingProfile
    mig_config: MigConfig | None
    layout_of_goal: Layout | None
    terms: tuple[Mapping[str, Any], ...]

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
        """How many nodes capacity is reported for; None when unknown."""
        return self.pool.nodes.count


@dataclass(frozen=True, kw_only=True)
class QuotaPlan:
    """The ResourceQuota of one namespace: (`requests.<resource>`, number) pairs, sorted."""

    namespace: str
    hard: tuple[tuple[str, int], ...]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The whole cluster, resolved. `pools` are sorted by name.

    `operator_mig_strategy` is the one strategy for gpu-operator, None where pools disagree and each config states its own.
    `former` are keys and configs of earlier generations that nodes may still use (from the lock file).
    """

    intent: Intent
    digest: str
    pools: tuple[PoolPlan, ...]
    quotas: tuple[QuotaPlan, ...]
    operator_mig_strategy: str | None
