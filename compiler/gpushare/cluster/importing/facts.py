"""What inputs say about a cluster, before pools are made of it: configs, nodes, settings, quotas.

Owns the types. Each has the part of the input that it is from, for findings, and the words that name this in comments.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gpushare.cluster.importing.accounting import Accounted
from gpushare.cluster.importing.parts import Labels, Part
from gpushare_node.contract.struct import NOTHING, Struct

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-"
SHARED = ".shared"


class Strategy(StrEnum):
    """How the device plugin shares: GFD's words in `nvidia.com/gpu.sharing-strategy`."""

    NONE = "none"
    TIME_SLICING = "time-slicing"
    MPS = "mps"


class PluginConfig(Struct):
    """One config of the device plugin. `replicas` has resources that are shared; `group` names the ConfigMap."""

    name: str
    group: str
    origin: str
    part: Part
    strategy: Strategy = Strategy.NONE
    replicas: Mapping[str, Part] = NOTHING
    rename: bool = False
    mig_strategy: str | None = None
    packed: bool = False
    works: bool = True


class MigEntry(Struct):
    """One entry of a mig-parted config. `gpus` None: all. `filters` empty: every card."""

    part: Part
    filters: tuple[str, ...]
    gpus: tuple[int, ...] | None
    enabled: bool
    layout: tuple[tuple[str, int], ...]


class MigPartedConfig(Struct):
    """One config of mig-parted."""

    name: str
    group: str
    origin: str
    part: Part
    entries: tuple[MigEntry, ...] = ()
    works: bool = True


class VgpuManagerConfig(Struct):
    """One config of NVIDIA's vGPU device manager. `is_whole`: every entry is about all GPUs. `filters` empty: every card."""

    name: str
    group: str
    origin: str
    part: Part
    filters: tuple[str, ...]
    types: tuple[tuple[str, int], ...]
    is_whole: bool


class ImportedNode(Struct):
    """One Node object. `gpus`: how many GPUs it has, where that follows from more than its labels."""

    name: str
    part: Part
    labels: Labels
    gpus: int | None = None


class ChartSettings(Struct):
    """Values of an upstream chart, or a ClusterPolicy. Parts whose value is None were not given.

    `config_group` is the ConfigMap that the chart names, "" for none; `mig_group` mig-manager's, `vgpu_group`
    that of the vGPU device manager. `version` is the chart's and
    `namespace` the release's, where the object around the values says them.
    """

    stack: str
    origin: str
    part: Part
    mig_strategy: str | None = None
    says_strategy: bool = False
    default: Part | None = None
    config_group: str = ""
    mig_group: str = ""
    vgpu_group: str = ""
    fallbacks: tuple[str, ...] = ()
    version: Part | None = None
    namespace: str = ""
    holds_configs: bool = False


class ImportedQuota(Struct):
    """One line of a ResourceQuota: `hard` holds the number."""

    namespace: str
    resource: str
    count: int
    origin: str
    part: Part


class Facts:
    """Everything that the inputs say. Collected by the readers of the kinds; `intents` are whole intents, such as a bundle's.

    `of_bundle` are documents that gpushare made of an intent, `dra_values` values for the chart of the DRA driver.
    `dra_objects` are objects of DRA, of whatever driver; none of them is read.
    """

    def __init__(self) -> None:
        self.configs: list[PluginConfig] = []
        self.mig_configs: list[MigPartedConfig] = []
        self.vgpu_configs: list[VgpuManagerConfig] = []
        self.device_configs: list[Part] = []
        self.manager_profiles: dict[str, Any] = {}
        self.nodes: list[ImportedNode] = []
        self.settings: list[ChartSettings] = []
        self.quotas: list[ImportedQuota] = []
        self.intents: list[Part] = []
        self.of_bundle: list[Part] = []
        self.dra_values: list[ChartSettings] = []
        self.dra_objects: list[Part] = []
        self.plugin_namespaces: set[str] = set()
        self.objects: list[Accounted] = []
        self.files_read: set[str] = set()

    def sort(self) -> None:
        """Put everything into an order that does not depend on that of the inputs."""
        self.configs.sort(key=lambda one: (one.name, one.group, one.origin))
        self.mig_configs.sort(key=lambda one: (one.name, one.group, one.origin))
        self.vgpu_configs.sort(key=lambda one: (one.name, one.group, one.origin))
        self.nodes.sort(key=lambda one: one.name)
        self.settings.sort(key=lambda one: one.origin)
        self.dra_values.sort(key=lambda one: one.origin)
        self.quotas.sort(key=lambda one: (one.namespace, one.resource, one.origin))
