"""The cluster intent as values: what the user asked for, every default filled in, nothing checked against a card yet.

`reader.build` makes them from a document. Units are in the names. Every default here, and those of `Rollout`, is part of v1
forever: changing one would relabel every node. What a policy has in the same words is the contract's.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gpushare.core.prices import Price
from gpushare.core.units import SizeOrPercent
from gpushare.intent.stacks import VendorStack
from gpushare.vendors import OTHERS
from gpushare_node.contract.names import OPERATOR_RUNTIME_CLASS
from gpushare_node.contract.policy import Action, Adoption, Backend, DraShares, Mechanism, Partitioner, Rollout
from gpushare_node.contract.struct import NOTHING, Struct
from gpushare_node.contract.tenancy import AdmissionMode, AdmissionScope


class Mode(StrEnum):
    """How a pool shares its GPUs."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    PARTITION = "partition"
    VGPU = "vgpu"


MODES = tuple(mode.value for mode in Mode)


ON_DEMAND = "on-demand"
"""The layout of GPUs whose MIG instances are made for each claim."""


class NvidiaStack(StrEnum):
    """Which chart of NVIDIA's serves the shares; `none` where no pool has NVIDIA's cards."""

    GPU_OPERATOR = "gpu-operator"
    DEVICE_PLUGIN = "device-plugin"
    EXISTING = "existing"
    NONE = "none"


class Requests(StrEnum):
    """How pods ask a pool of DRA for devices: by claims, by the `limits` of an extended resource, or by either."""

    CLAIMS = "claims"
    LIMITS = "limits"
    BOTH = "both"


class DraVia(StrEnum):
    """Who installs NVIDIA's DRA driver: the bundle's values for its chart, or the cluster's administrators."""

    CHART = "chart"
    EXISTING = "existing"


class SharePlacement(StrEnum):
    """Which device gets the next share: `spread` the emptiest, `pack` the fullest."""

    SPREAD = "spread"
    PACK = "pack"


class Interval(StrEnum):
    """How long the turn of a container is where containers take turns on a GPU."""

    SHORT = "short"
    MEDIUM = "medium"
    LONG = "long"


class MigStrategy(StrEnum):
    """How the device plugin names MIG instances: `mixed` by profile, `single` all as nvidia.com/gpu."""

    MIXED = "mixed"
    SINGLE = "single"


class Operator(StrEnum):
    """Operators of label expressions, as in Kubernetes node affinity."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"


class CapWord(StrEnum):
    """Memory caps that are not a size."""

    EVEN = "even"
    NONE = "none"


class Autoscaler(StrEnum):
    """What adds and removes the nodes of a pool."""

    CLUSTER_AUTOSCALER = "cluster-autoscaler"
    KARPENTER = "karpenter"


class Expression(Struct):
    """One requirement on one node label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class NodeSelector(Struct):
    """Which nodes a pool has: a node must match every part that is set. `names` empty: any name."""

    match_labels: tuple[tuple[str, str], ...] = ()
    match_expressions: tuple[Expression, ...] = ()
    names: tuple[str, ...] = ()
    expected: int | None = None

    @property
    def count(self) -> int | None:
        """How many nodes capacity is reported for: the number of names, else `expected`, else None (unknown)."""
        return len(self.names) if self.names else self.expected


class Exclusive(Struct):
    """Whole GPUs. The attributes are constants, not fields: an intent cannot set them, and digests leave them out."""

    mode = Mode.EXCLUSIVE
    replicas, rename, placement = (), True, SharePlacement.SPREAD


class Replicated(Struct):
    """What all modes have that offer a device several times, as often as their `replicas` say."""

    rename: bool = True
    placement: SharePlacement = SharePlacement.SPREAD


class TimeSlicing(Replicated):
    """Every GPU offered `replicas` times; containers take turns on it, without memory isolation.

    `interval` None: the GPU driver's default.
    """

    mode = Mode.TIME_SLICING
    replicas: int
    interval: Interval | None = None


class Mps(Replicated):
    """Every GPU offered `replicas` times through the device plugin's MPS daemon."""

    mode = Mode.MPS
    replicas: int


Layout = tuple[tuple[str, int], ...]
"""A MIG layout: (profile name, count) in the user's order, counts ≥ 1; the empty tuple is `none`, a whole GPU."""


class LayoutGroup(Struct):
    """GPUs of a node, by index, that get the same layout."""

    gpus: tuple[int, ...]
    layout: Layout


class MostInstances(Struct):
    """Goal: as many instances as the card allows."""


class Balanced(Struct):
    """Goal: instances of different sizes on one GPU, as mig-parted's `all-balanced`."""


class Instances(Struct):
    """Goal: exactly `count` instances, the smallest of them as large as possible."""

    count: int


class MemoryEach(Struct):
    """Goal: the most instances with at least `size_bytes` usable each."""

    size_bytes: int


Goal = MostInstances | Balanced | Instances | MemoryEach


class OnDemand(Struct):
    """MIG instances that NVIDIA's DRA driver makes for each claim: of these profiles, without any of all plain ones."""

    profiles: tuple[str, ...] = ()


class Mig(Replicated):
    """Hardware partitions: `wanted` is one layout for all GPUs, groups by index, a goal that the compiler resolves, or none.

    `replicas` adds time-slicing: one number for every profile, or (profile, number) pairs; empty: no time-slicing.
    """

    mode = Mode.MIG
    wanted: Layout | tuple[LayoutGroup, ...] | Goal | OnDemand
    strategy: MigStrategy = MigStrategy.MIXED
    replicas: int | tuple[tuple[str, int], ...] = ()


class ComputeGroup(Struct):
    """GPUs of a node, by index, that get the same compute mode."""

    gpus: tuple[int, ...]
    compute: str


class Partition(Struct):
    """Partitions of AMD's GPUs: one memory mode for the node, and a compute mode for all GPUs or, in `groups`, by index.

    `strategy` names the resources: `mixed` by mode, `single` all as whole GPUs. The other attributes are constants.
    """

    mode = Mode.PARTITION
    replicas, rename, placement = (), True, SharePlacement.SPREAD
    memory: str
    compute: str = ""
    groups: tuple[ComputeGroup, ...] = ()
    strategy: MigStrategy = MigStrategy.MIXED


class Vgpu(Struct):
    """GPUs for virtual machines: each is divided into as many vGPUs of the type `profile` as it can have.

    `kernel` is the version of the nodes' kernel, as (major, minor); None: not stated. The other attributes are constants.
    """

    mode = Mode.VGPU
    replicas, rename, placement = (), True, SharePlacement.SPREAD
    profile: str
    kernel: tuple[int, int] | None = None


Sharing = Exclusive | TimeSlicing | Mps | Mig | Partition | Vgpu
"""The settings of a mode; what is true of the mode itself is in `modes`."""

CapValue = int | CapWord
"""A cap: bytes, `even` or `none`."""


class Memory(Struct):
    """Memory caps of a pool. `cap` None: not set (`even` if devices are shared). A tuple maps MIG profiles to caps.

    `reserve` None: the default, the larger of 3 % and 256 MiB.
    """

    cap: CapValue | tuple[tuple[str, CapValue], ...] | None = None
    reserve: SizeOrPercent | None = None
    oversubscribe_percent: int = 100


class Enforcement(Struct):
    """How a cap is enforced. `tolerance` is bytes or a percentage of the cap.

    `notice_seconds`: how long a container that ran before its pool had a cap stays exempt after its warning; None: always.
    """

    action: Action = Action.KILL
    grace_seconds: int = 10
    tolerance: SizeOrPercent = SizeOrPercent(bytes=0)
    mechanism: Mechanism = Mechanism.AUTO
    notice_seconds: int | None = None


class Require(Struct):
    """What the card must have. None: not required."""

    nvlink: bool | None = None
    ecc: bool | None = None
    memory_bytes: int | None = None


class Pool(Struct):
    """Nodes of one card model, shared in one way. `is_default`: admission sends pods that do not name a pool here.

    `autoscaler` None: nothing adds or removes its nodes. `requests` and `sizes`, the memory in bytes that further claims ask
    for by name, are those of a pool of DRA.
    """

    name: str
    card: str
    nodes: NodeSelector
    gpus_per_node: int
    sharing: Sharing
    priority: int = 0
    memory: Memory = Memory()
    enforcement: Enforcement = Enforcement()
    rollout: Rollout = Rollout()
    require: Require = Require()
    namespaces: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()
    is_default: bool = False
    autoscaler: Autoscaler | None = None
    backend: Backend = Backend.DEVICE_PLUGIN
    requests: Requests = Requests.CLAIMS
    sizes: tuple[tuple[str, int], ...] = ()

    @property
    def mode(self) -> Mode:
        """The pool's mode as the user wrote it."""
        return self.sharing.mode


class GpuDriver(Struct):
    """The GPU driver that the operator installs; a field that is None is left to the operator."""

    repository: str | None = None
    image: str | None = None
    version: str | None = None


class VgpuManager(Struct):
    """The image of NVIDIA's vGPU manager, which its licence keeps private: a site builds it. `image` None: the chart's name."""

    repository: str
    version: str
    image: str | None = None


class RuntimeImage(Struct):
    """The node runtime's image; a field that is None has this gpushare's default. A digest takes the place of the tag."""

    repository: str | None = None
    tag: str | None = None
    digest: str | None = None


class Dra(Struct):
    """NVIDIA's DRA driver. `version` None: the newest known chart. `driver_root`: where the GPU driver is on the nodes."""

    via: DraVia = DraVia.CHART
    version: str | None = None
    shares: DraShares = DraShares.MEMORY
    driver_root: str = "/"

    @property
    def namespace(self) -> str:
        """Where the driver that the bundle installs runs: its release has the same name."""
        return "dra-driver-nvidia-gpu"


class Platform(Struct):
    """The upstream stack beside gpushare. `driver` None: the nodes have drivers installed. `version` None: the newest known.

    `vgpu_manager` None: no node has vGPUs.
    `charts`: the address from which NVIDIA's chart is installed, if not its publisher's: https://, http:// or oci://.
    `own_runtime_class`: the user's word for `runtime_class`, which counts where no upstream chart says it.
    `namespace`: where the device plugin runs and reads its configs; None: in the bundle's.
    `namespaces`: where more of the platform's own pods run, besides these two and kube-system. `others` are the stacks
    of other vendors that the intent names, by vendor; where no pool has NVIDIA's cards, the platform's version, namespace and
    values are theirs. `dra` None: the intent says nothing of NVIDIA's DRA driver.
    """

    stack: NvidiaStack = NvidiaStack.GPU_OPERATOR
    version: str | None = None
    partitioner: Partitioner = Partitioner.GPUSHARE
    driver: GpuDriver | None = None
    vgpu_manager: VgpuManager | None = None
    registry: str | None = None
    charts: str | None = None
    image: RuntimeImage = RuntimeImage()
    own_runtime_class: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    namespace: str | None = None
    namespaces: tuple[str, ...] = ()
    values: Mapping[str, Any] = NOTHING
    others: Mapping[str, VendorStack] = NOTHING
    dra: Dra | None = None

    @property
    def installs_chart(self) -> bool:
        """Whether the bundle has values of one of NVIDIA's charts."""
        return self.stack in (NvidiaStack.GPU_OPERATOR, NvidiaStack.DEVICE_PLUGIN)

    @property
    def stacks(self) -> tuple[str, ...]:
        """The words of the stacks that the intent names: NVIDIA's, then those of others."""
        words = [self.stack.value] if self.stack is not NvidiaStack.NONE else []
        return tuple(dict.fromkeys([*words, *(one.stack.value for one in self.others.values())]))

    def of_vendor(self, vendor: str) -> VendorStack:
        """Return the stack of another vendor, for a pool of its cards: what is installed already where nothing else is said."""
        return self.others.get(vendor) or VendorStack.existing(vendor)

    def stack_of(self, vendor: str) -> str:
        """Return the word of a vendor's stack."""
        return self.of_vendor(vendor).stack.value if vendor in OTHERS else self.stack.value

    @property
    def of_dra(self) -> Dra:
        """NVIDIA's DRA driver, for a pool that it serves: with every default where the intent says nothing of it."""
        return self.dra or Dra()

    @property
    def runtime_class(self) -> str:
        """The RuntimeClass whose runtime injects driver and devices, as the upstream chart names it; empty: the node's default.

        The upstream chart of an existing plugin is unknown: its class is the user's to name.
        """
        chosen = self.own_runtime_class
        if self.stack is NvidiaStack.GPU_OPERATOR:
            # The CRD's default for an empty value.
            chosen = self.values.get("operator", {}).get("runtimeClass") or OPERATOR_RUNTIME_CLASS
        elif self.stack is NvidiaStack.DEVICE_PLUGIN:
            chosen = self.values.get("runtimeClassName")
        return chosen or ""


class Admission(Struct):
    """What admission policies do, to whose pods, and which AppArmor profiles of type Localhost tenants may use."""

    mode: AdmissionMode = AdmissionMode.DENY
    scope: AdmissionScope = AdmissionScope.TENANTS
    localhost_profiles: tuple[str, ...] = ()


class Quota(Struct):
    """How much of one pool one namespace may request.

    Either `per_resource` is set ((name as the user wrote it, count) pairs: a MIG profile name), or `shares`, `memory_bytes` or
    both, of which the smaller applies.
    """

    namespace: str
    pool: str
    shares: int | None = None
    per_resource: tuple[tuple[str, int], ...] = ()
    memory_bytes: int | None = None


class Intent(Struct):
    """The intent of one cluster. `pools` and `quotas` are in the user's order; `cards` are card documents keyed by id.

    `accepted` are the warnings that the user accepts: (code, reason) pairs. `prices` are of a GPU-hour, by pool or card; that
    of the pool counts.

    `kubernetes` is None if the text is not a version; a rule reports it.
    """

    name: str
    pools: tuple[Pool, ...]
    kubernetes: tuple[int, int] | None = (1, 30)
    namespace: str = "gpu-system"
    platform: Platform = Platform()
    quotas: tuple[Quota, ...] = ()
    admission: Admission = Admission()
    adoption: Adoption = Adoption.ENFORCE
    accepted: tuple[tuple[str, str], ...] = ()
    monitoring: Mapping[str, Any] = NOTHING
    gitops: Mapping[str, Any] = NOTHING
    cards: Mapping[str, Any] = NOTHING
    prices: Mapping[str, Price] = NOTHING

    @property
    def observes(self) -> bool:
        """Whether the bundle changes nothing that was on the cluster before it."""
        return self.adoption is Adoption.OBSERVE

    @property
    def plugin_namespace(self) -> str:
        """Where the device plugin runs and reads its configs: the namespace of the upstream chart."""
        return self.platform.namespace or self.namespace

    @property
    def has_dra(self) -> bool:
        """Whether NVIDIA's DRA driver serves a pool."""
        return any(pool.backend.has_claims for pool in self.pools)

    @property
    def installs_dra_driver(self) -> bool:
        """Whether the bundle installs the chart of NVIDIA's DRA driver."""
        return self.has_dra and self.platform.of_dra.via is DraVia.CHART and not self.observes

    @property
    def copies_config_map(self) -> bool:
        """Whether a person copies our ConfigMap to where an installed plugin runs, because the intent does not say where."""
        return self.platform.stack is NvidiaStack.EXISTING and self.platform.namespace is None

    @property
    def kept_config_maps(self) -> tuple[str, ...]:
        """The ConfigMaps in the plugin's namespace that stay after an uninstall, because values of NVIDIA's chart name them."""
        manager = ("gpushare-mig-parted",) if self.platform.partitioner is Partitioner.MIG_MANAGER else ()
        vgpus = ("gpushare-vgpu",) if self.platform.vgpu_manager else ()
        return ("gpushare-profiles", *manager, *vgpus)

    @property
    def platform_namespaces(self) -> tuple[str, ...]:
        """The namespaces of the platform's own pods, sorted: one list for admission and enforcement."""
        others = (one.namespace for one in self.platform.others.values())
        of_dra = (self.platform.of_dra.namespace,) if self.installs_dra_driver else ()
        named = {"kube-system", self.namespace, self.plugin_namespace, *others, *of_dra, *self.platform.namespaces}
        return tuple(sorted(named))

    @property
    def tenant_namespaces(self) -> tuple[str, ...]:
        """The namespaces that pools and quotas name, sorted."""
        named = (namespace for pool in self.pools for namespace in pool.namespaces)
        return tuple(sorted({*named, *(quota.namespace for quota in self.quotas)}))
