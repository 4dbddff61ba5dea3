"""Policy: the desired state of a node of one pool, and its format (NodePolicy v1): `document` writes it, `read` reads it.

A policy is fully validated when it is read: it has every GPU index exactly once, and MIG is on if and only if it wants
instances, or the DRA driver makes them. Reads no files; does not know cards or hardware.
"""

import re
from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import Any

import yaml

from gpushare_node.contract.names import REPARTITIONING_TAINTS
from gpushare_node.contract.strict_document import Field, PolicyError
from gpushare_node.contract.struct import Struct, field, replace
from gpushare_node.contract.vendors import VENDORS, Stack, Vendor
from gpushare_node.contract.windows import DAYS, Window

__all__ = [
    "CLASS_PREFIX",
    "Action",
    "Backend",
    "DesiredGpu",
    "DesiredInstance",
    "DesiredPartition",
    "DraShares",
    "Enforcement",
    "ExpectedCard",
    "Mechanism",
    "Mode",
    "ModeSwitch",
    "OnBusy",
    "Partitioner",
    "Policy",
    "PolicyError",
    "PoolDra",
    "RepartitioningTaint",
    "Rollout",
    "Share",
    "Stack",
    "Vendor",
    "document",
    "read",
]

_MAX_GPUS = 16
_MAX_REPLICAS = 1024

_POOL = r"[a-z0-9]([-a-z0-9]{0,46}[a-z0-9])?"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_PCI_ID = r"0x[0-9A-F]{8}"
_PROFILE_KEY = r"[a-z][a-z-]{0,51}-[0-9a-f]{8}"
_MAX_PARTITIONS = 8
_MANAGER_CONFIG = r"[a-z]+-nps[1-8]-[0-9]{1,2}-[0-9a-f]{8}"
_COMPUTE = "[A-Z]PX"
_MEMORY = "NPS[0-9]"
CLASS_PREFIX = "gpushare-"
"""With which the names of the bundle's DeviceClasses begin."""
_CLASS = CLASS_PREFIX + r"[a-z0-9]([-a-z0-9]{0,52}[a-z0-9])?"
_DRIVER = r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?"
_PERCENT = r"[1-9][0-9]*%"
_DAY = "|".join(DAYS)
_TIME = r"([01][0-9]|2[0-3]):[0-5][0-9]"
_TIME_ZONE = r"[A-Za-z0-9_+-]{1,32}(/[A-Za-z0-9_+-]{1,32}){0,2}"
_MAX_WINDOW_SECONDS = 7 * 24 * 3600

# What PyYAML's constructors raise, besides its own errors, for text such as `!!bool x` or `2000-13-01`.
_UNREADABLE = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


_MAX_DEPTH = 100
"""The maximum nesting of lists and mappings: a policy needs six levels."""
_TOO_DEEP = f"nested more than {_MAX_DEPTH} deep"
_OWN_LIMIT = "exceeded maximum nesting depth"
"""libyaml from 0.2.6 on (PyYAML 6.0.4) has a limit as well, of 1,000."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Limits the nesting depth. libyaml's loader takes a tenth of the time, but deep nesting would overflow the C stack."""

    _depth = 0

    def descend_resolver(self, current_node: object, current_index: object) -> None:
        """Called by PyYAML before each node."""
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise yaml.YAMLError(_TOO_DEEP)
        super().descend_resolver(current_node, current_index)

    def ascend_resolver(self) -> None:
        """Called by PyYAML after each node."""
        self._depth -= 1
        super().ascend_resolver()


class _ApiVersion(StrEnum):
    V1 = "gpushare.dev/v1"


class _Kind(StrEnum):
    NODE_POLICY = "NodePolicy"


class Mode(StrEnum):
    """How the pool's GPUs are shared."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"
    PARTITION = "partition"

    @property
    def has_daemon(self) -> bool:
        """Whether clients compute through a control daemon: a restart of it ends them, and it alone has the GPU's context."""
        return self is Mode.MPS

    @property
    def isolates_memory(self) -> bool:
        """Whether the hardware bounds the memory of every share."""
        return self in (Mode.MIG, Mode.PARTITION)


class Backend(StrEnum):
    """How the pool's GPUs are offered to pods."""

    DEVICE_PLUGIN = "device-plugin"
    DRA = "dra"

    @property
    def has_claims(self) -> bool:
        """Whether pods get devices by claims, and nodes offer them in slices; else by resources, which are allocatable."""
        return self is Backend.DRA

    @property
    def label(self) -> str | None:
        """The value of `BACKEND_LABEL` with which it may run on a node; None: the node does not have the label."""
        return self.value if self.has_claims else None


class DraShares(StrEnum):
    """By what claims share a device: what they consume of it."""

    MEMORY = "memory"
    COUNT = "count"


class Partitioner(StrEnum):
    """The program that divides the GPUs of the node. NONE: no program does, and what they have is only compared."""

    GPUSHARE = "gpushare"
    MIG_MANAGER = "mig-manager"
    CONFIG_MANAGER = "config-manager"
    NONE = "none"


class Action(StrEnum):
    """The action against a container over its cap."""

    KILL = "kill"
    EVICT = "evict"
    WARN = "warn"
    NONE = "none"


class Mechanism(StrEnum):
    """What enforces the caps; `auto` is the best that the driver supports, `none` where the hardware bounds every share."""

    AUTO = "auto"
    DRIVER = "driver"
    MPS = "mps"
    WATCHER = "watcher"
    NONE = "none"


class OnBusy(StrEnum):
    """What the runtime does if tenants use GPUs that must change."""

    WAIT = "wait"
    EVICT = "evict"
    FAIL = "fail"


class RepartitioningTaint(StrEnum):
    """The key of the taint while the GPUs are changed.

    Cluster Autoscaler simulates the nodes that it would add: it copies the taints of a node of the group, but not the second.
    """

    DEFAULT = REPARTITIONING_TAINTS[0]
    CLUSTER_AUTOSCALER = REPARTITIONING_TAINTS[1]


class Adoption(StrEnum):
    """Whether the runtime acts, or changes nothing and says what it would do."""

    ENFORCE = "enforce"
    OBSERVE = "observe"


class ExpectedCard(Struct):
    """The only card model that the node may have. `memory_mib` is the smallest known total, None if it is unknown."""

    id: str
    name: str
    pci_device_ids: tuple[str, ...]
    memory_mib: int | None


class DesiredInstance(Struct):
    """A GPU instance with one compute instance of its whole size. `profile_id` None: the profile is found by name in NVML."""

    profile: str
    profile_id: int | None
    start: int
    size: int


class DesiredPartition(Struct):
    """The modes by which AMD's driver divides a GPU, such as `CPX` and `NPS4`, and the devices that the GPU then is.

    `memory_mib` is the smallest memory of a device, None if it is unknown.
    """

    compute: str
    memory: str
    devices: int
    memory_mib: int | None = None

    @property
    def word(self) -> str:
        """The modes as AMD writes them, `CPX/NPS4`."""
        return f"{self.compute}/{self.memory}"

    @property
    def name(self) -> str:
        """The modes as resources and shares name them, `cpx_nps4`."""
        return f"{self.compute}_{self.memory}".lower()


class ModeSwitch(StrEnum):
    """Who switches MIG mode of a GPU whose instances the DRA driver makes on demand."""

    RUNTIME = "runtime"
    DRIVER = "driver"


class DesiredGpu(Struct):
    """The desired state of the GPU with this index. MIG is on if and only if there are instances.

    `partition` None: the GPU is an NVIDIA one, or cannot be divided, or its modes do not matter. With `on_demand` the instances
    are the DRA driver's, which makes one for each claim: with a switch by the runtime MIG is on before the driver starts.
    """

    index: int
    instances: tuple[DesiredInstance, ...]
    partition: DesiredPartition | None = None
    on_demand: ModeSwitch | None = None

    @property
    def profiles(self) -> tuple[str | None, ...]:
        """The profile of each device; None for the whole GPU."""
        return tuple(instance.profile for instance in self.instances) or (None,)


class Share(Struct):
    """How much of one device one container may use. `profile` None: a whole GPU; `cap_mib` None: no cap."""

    resource: str
    profile: str | None
    replicas: int
    memory_mib: int | None
    cap_mib: int | None
    tolerance_mib: int


class PoolDra(Struct):
    """The DRA driver that offers the GPUs. `shares` None: no claim of this cluster shares a device.

    `on_demand`: it makes a MIG instance for each claim, and removes it after the claim.
    """

    driver: str
    shares: DraShares | None
    on_demand: bool


class Enforcement(Struct):
    """How caps are enforced.

    `notice_seconds`: how long after its warning a container that ran before the pool had a cap stays exempt; None: always.
    """

    action: Action
    grace_seconds: int
    mechanism: Mechanism
    notice_seconds: int | None = None


class Rollout(Struct):
    """How a change rolls out over the nodes. `max_unavailable` is a number of nodes or a percentage such as `10%`.

    With `is_paused` no disruptive change begins; with `windows` it begins only in one of them.
    """

    max_unavailable: int | str = 1
    on_busy: OnBusy = OnBusy.WAIT
    drain_timeout_seconds: int = 1800
    is_paused: bool = False
    windows: tuple[Window, ...] = ()

    @property
    def waiting_seconds(self) -> int:
        """How long a drain may take."""
        return 0 if self.on_busy is OnBusy.FAIL else self.drain_timeout_seconds


class Policy(Struct):
    """One pool's policy. `gpus` are sorted by index, from 0 without a gap; `resources` is what allocatable must contain.

    With `dra` the resources are DeviceClasses, and `resources` counts a node's devices of each: with instances on demand, the
    places at which one can be.

    `profile` is the device plugin's config, empty if nothing follows its label. `manager_config` is what AMD's config manager
    is to apply, None if it is to apply nothing.

    `ignored` are paths of fields that a newer compiler wrote and that this runtime does not know.
    """

    pool: str
    cluster: str
    card: ExpectedCard
    mode: Mode
    stack: Stack
    partitioner: Partitioner
    profile: str
    mig_config: str | None
    gpus: tuple[DesiredGpu, ...]
    resources: tuple[tuple[str, int], ...]
    shares: tuple[Share, ...]
    enforcement: Enforcement
    rollout: Rollout
    namespaces: tuple[str, ...]
    repartitioning_taint: RepartitioningTaint = RepartitioningTaint.DEFAULT
    adoption: Adoption = Adoption.ENFORCE
    backend: Backend = Backend.DEVICE_PLUGIN
    vendor: Vendor = Vendor.NVIDIA
    manager_config: str | None = None
    dra: PoolDra | None = None
    ignored: tuple[str, ...] = field(default=(), compare=False)

    @property
    def is_on_demand(self) -> bool:
        """Whether the DRA driver makes the MIG instances, one for each claim."""
        return self.dra is not None and self.dra.on_demand

    @property
    def observes(self) -> bool:
        """Whether nothing on the node may be changed."""
        return self.adoption is Adoption.OBSERVE

    def share_of(self, partition: DesiredPartition) -> Share:
        """Return the share of a device of such a GPU: the resource may be named by the modes."""
        suffix = f"/{partition.name}"
        return next((share for share in self.shares if share.resource.endswith(suffix)), self.shares[0])

    def is_alike(self, other: "Policy") -> bool:
        """Whether both give a node the same layout and resources, even if they differ otherwise: caps, rollout, names."""
        own = (self.mode, self.profile, self.manager_config, self.gpus, self.resources)
        return own == (other.mode, other.profile, other.manager_config, other.gpus, other.resources)


def document(policy: Policy) -> dict[str, Any]:
    """Return what `read` reads this policy from: equal GPUs are one entry, and later fields are only where they are set.

    The order of the keys is part of the format: a changed text of a policy restarts the pods of its pool.
    """
    vendor = {} if policy.vendor is Vendor.NVIDIA else {"vendor": policy.vendor.value}
    has_manager = VENDORS[policy.vendor].layout_taint is not None or policy.manager_config is not None
    taint = policy.repartitioning_taint
    spec = {
        "card": {
            "id": policy.card.id,
            "name": policy.card.name,
            "pciDeviceIds": list(policy.card.pci_device_ids),
            "memoryMiB": policy.card.memory_mib,
        },
        "gpusPerNode": len(policy.gpus),
        "mode": policy.mode.value,
        **vendor,
        "stack": policy.stack.value,
        "partitioner": policy.partitioner.value,
        "profile": policy.profile or None,
        "migConfig": policy.mig_config,
        **({"managerConfig": policy.manager_config} if has_manager else {}),
        **({"backend": policy.backend.value} if policy.backend is not Backend.DEVICE_PLUGIN else {}),
        **({"dra": _dra_entry(policy.dra)} if policy.dra else {}),
        "gpus": _groups(policy.gpus),
        "resources": dict(policy.resources),
        "shares": [
            {
                "resource": share.resource,
                "profile": share.profile,
                "replicas": share.replicas,
                "memoryMiB": share.memory_mib,
                "capMiB": share.cap_mib,
                "toleranceMiB": share.tolerance_mib,
            }
            for share in policy.shares
        ],
        "enforcement": {
            "action": policy.enforcement.action.value,
            "graceSeconds": policy.enforcement.grace_seconds,
            "mechanism": policy.enforcement.mechanism.value,
            "noticeSeconds": policy.enforcement.notice_seconds,
        },
        "rollout": rollout_document(policy.rollout),
        "namespaces": list(policy.namespaces),
        **({"repartitioningTaint": taint.value} if taint is not RepartitioningTaint.DEFAULT else {}),
        **({"adoption": policy.adoption.value} if policy.observes else {}),
    }
    metadata = {"name": policy.pool, "cluster": policy.cluster}
    return {"apiVersion": _ApiVersion.V1.value, "kind": _Kind.NODE_POLICY.value, "metadata": metadata, "spec": spec}


def _groups(gpus: tuple[DesiredGpu, ...]) -> list[dict[str, Any]]:
    """Return one entry for equal GPUs, in the order of the first of each."""
    found: dict[DesiredGpu, list[int]] = {}
    for gpu in gpus:
        found.setdefault(replace(gpu, index=0), []).append(gpu.index)
    return [
        {
            "indexes": indexes,
            "mig": bool(gpu.instances) or gpu.on_demand is ModeSwitch.RUNTIME,
            "instances": [
                {"profile": one.profile, "profileId": one.profile_id, "start": one.start, "size": one.size}
                for one in gpu.instances
            ],
            **({"partition": _partition_entry(gpu.partition)} if gpu.partition else {}),
        }
        for gpu, indexes in found.items()
    ]


def _dra_entry(one: PoolDra) -> dict[str, Any]:
    return {"driver": one.driver, "shares": one.shares.value if one.shares else None, "onDemand": one.on_demand}


def _partition_entry(one: DesiredPartition) -> dict[str, Any]:
    return {"compute": one.compute, "memory": one.memory, "devices": one.devices, "memoryMiB": one.memory_mib}


def rollout_document(rollout: Rollout) -> dict[str, Any]:
    """Return the entry of a rollout; `paused` and `windows` only if they are set."""
    windows = [
        {
            "days": list(window.days),
            "start": window.start,
            "durationSeconds": window.duration_seconds,
            "timezone": window.timezone,
        }
        for window in rollout.windows
    ]
    return {
        "maxUnavailable": rollout.max_unavailable,
        "onBusy": rollout.on_busy.value,
        "drainTimeoutSeconds": rollout.drain_timeout_seconds,
        **({"paused": True} if rollout.is_paused else {}),
        **({"windows": windows} if windows else {}),
    }


@lru_cache(maxsize=2)
def read(text: str) -> Policy:
    """Return the policy in this text. PolicyError, with the path inside the document, if it is not a valid policy.

    The policy in force and the given policy are mostly the same text, which is then read once.

    Compiler and runtime may be one release apart: fields that were added since then are optional here, and unknown fields are
    ignored. A change in the meaning of a known field requires another apiVersion.
    """
    try:
        document = yaml.load(text, Loader=_Loader)  # noqa: S506 - as safe as safe_load
    except _UNREADABLE as error:
        reason = _TOO_DEEP if _OWN_LIMIT in str(error) else " ".join(str(error).split())
        raise PolicyError((), f"is not YAML: {reason}") from error
    ignored: list[str] = []
    return replace(of_document(document, ignored), ignored=tuple(ignored))


def of_document(document: object, ignored: list[str] | None = None) -> Policy:
    """Return the policy of a document, and add to `ignored` the paths of unknown fields; None: these are errors too."""
    whole = Field(value=document, ignored=ignored).fields("apiVersion", "kind", "metadata", "spec")
    whole["apiVersion"].enum(_ApiVersion)
    whole["kind"].enum(_Kind)
    metadata = whole["metadata"].fields("name", "cluster")
    spec = whole["spec"].fields(
        "card",
        "gpusPerNode",
        "mode",
        "stack",
        "partitioner",
        "profile",
        "migConfig",
        "gpus",
        "resources",
        "shares",
        "enforcement",
        "rollout",
        "namespaces",
        optional=("repartitioningTaint", "adoption", "backend", "vendor", "managerConfig", "dra"),
    )
    vendor = spec["vendor"].optional(lambda value: value.enum(Vendor)) or Vendor.NVIDIA
    backend = spec["backend"].optional(lambda value: value.enum(Backend)) or Backend.DEVICE_PLUGIN
    is_dra = backend is Backend.DRA
    if not is_dra and spec["dra"].value is not None:
        raise spec["dra"].refusal("must be null without the back end dra")
    has_profile = bool(VENDORS[vendor].plugin_label) and not is_dra
    name = _CLASS if is_dra else re.escape(VENDORS[vendor].prefix) + "(?s:.*)"
    dra = _dra(spec["dra"]) if is_dra else None
    is_on_demand = dra is not None and dra.on_demand
    return Policy(
        pool=metadata["name"].text(_POOL),
        cluster=metadata["cluster"].text(_LABEL),
        card=_card(spec["card"]),
        mode=spec["mode"].enum(Mode),
        stack=spec["stack"].enum(Stack),
        partitioner=spec["partitioner"].enum(Partitioner),
        profile=spec["profile"].text(_PROFILE_KEY) if has_profile else _optional_profile(spec["profile"]),
        mig_config=spec["migConfig"].optional(lambda value: value.text(at_most=63)),
        gpus=_gpus(spec["gpus"], spec["gpusPerNode"].integer(at_least=1, at_most=_MAX_GPUS), is_on_demand=is_on_demand),
        resources=_resources(spec["resources"], name if is_dra else None),
        shares=tuple(_share(value, name) for value in spec["shares"].items(at_least=1)),
        enforcement=_enforcement(spec["enforcement"]),
        rollout=_rollout(spec["rollout"]),
        namespaces=tuple(value.text(_LABEL) for value in spec["namespaces"].items()),
        repartitioning_taint=spec["repartitioningTaint"].optional(lambda value: value.enum(RepartitioningTaint))
        or RepartitioningTaint.DEFAULT,
        adoption=spec["adoption"].optional(lambda value: value.enum(Adoption)) or Adoption.ENFORCE,
        backend=backend,
        vendor=vendor,
        manager_config=spec["managerConfig"].optional(lambda value: value.text(_MANAGER_CONFIG)),
        dra=dra,
    )


def _optional_profile(value: Field) -> str:
    return value.optional(lambda one: one.text(_PROFILE_KEY)) or ""


def _card(value: Field) -> ExpectedCard:
    fields = value.fields("id", "name", "pciDeviceIds", "memoryMiB")
    return ExpectedCard(
        id=fields["id"].text(at_least=1),
        name=fields["name"].text(at_least=1),
        pci_device_ids=tuple(item.text(_PCI_ID) for item in fields["pciDeviceIds"].items()),
        memory_mib=fields["memoryMiB"].optional(_positive),
    )


def _gpus(value: Field, gpus_per_node: int, *, is_on_demand: bool) -> tuple[DesiredGpu, ...]:
    """Return one entry for every index. The document groups equal GPUs; only this function knows the groups."""
    found: dict[int, DesiredGpu] = {}
    for group in value.items(at_least=1):
        for at, gpu in _group(group, is_on_demand=is_on_demand):
            if gpu.index in found:
                raise at.refusal("must be listed exactly once in all groups")
            if gpu.index >= gpus_per_node:
                raise at.refusal(f"must be below gpusPerNode, which is {gpus_per_node}")
            found[gpu.index] = gpu
    missing = [str(index) for index in range(gpus_per_node) if index not in found]
    if missing:
        raise PolicyError(value.path, f"must have an entry for GPU {', '.join(missing)}")
    return tuple(found[index] for index in sorted(found))


def _group(value: Field, *, is_on_demand: bool) -> Iterator[tuple[Field, DesiredGpu]]:
    fields = value.fields("indexes", "mig", "instances", optional=("partition",))
    instances = tuple(_instance(item) for item in fields["instances"].items())
    mig = fields["mig"].boolean()
    if is_on_demand and instances:
        raise fields["instances"].refusal("must be empty where the DRA driver makes them on demand")
    if mig != bool(instances) and not is_on_demand:
        raise fields["mig"].refusal("must be true exactly where instances are listed")
    on_demand = None if not is_on_demand else ModeSwitch.RUNTIME if mig else ModeSwitch.DRIVER
    partition = fields["partition"].optional(_partition)
    for index in fields["indexes"].items(at_least=1):
        number = index.integer(at_least=0, at_most=_MAX_GPUS - 1)
        yield index, DesiredGpu(index=number, instances=instances, partition=partition, on_demand=on_demand)


def _partition(value: Field) -> DesiredPartition:
    fields = value.fields("compute", "memory", "devices", "memoryMiB")
    return DesiredPartition(
        compute=fields["compute"].text(_COMPUTE),
        memory=fields["memory"].text(_MEMORY),
        devices=fields["devices"].integer(at_least=1, at_most=_MAX_PARTITIONS),
        memory_mib=fields["memoryMiB"].optional(_positive),
    )


def _instance(value: Field) -> DesiredInstance:
    fields = value.fields("profile", "profileId", "start", "size")
    return DesiredInstance(
        profile=fields["profile"].text(at_least=1),
        profile_id=fields["profileId"].optional(lambda one: one.integer(at_least=0)),
        start=fields["start"].integer(at_least=0),
        size=fields["size"].integer(at_least=1),
    )


def _resources(value: Field, name: str | None) -> tuple[tuple[str, int], ...]:
    entries = value.entries(at_least=1)
    for key, count in entries:
        if name is not None and not re.fullmatch(name, key):
            raise PolicyError(count.path, f"must have a name that matches {name}")
    return tuple((key, count.integer(at_least=1)) for key, count in entries)


def _dra(value: Field) -> PoolDra:
    fields = value.fields("driver", "shares", "onDemand")
    return PoolDra(
        driver=fields["driver"].text(_DRIVER),
        shares=fields["shares"].optional(lambda one: one.enum(DraShares)),
        on_demand=fields["onDemand"].boolean(),
    )


def _share(value: Field, resource: str) -> Share:
    fields = value.fields("resource", "profile", "replicas", "memoryMiB", "capMiB", "toleranceMiB")
    return Share(
        resource=fields["resource"].text(resource),
        profile=fields["profile"].optional(lambda one: one.text()),
        replicas=fields["replicas"].integer(at_least=1, at_most=_MAX_REPLICAS),
        memory_mib=fields["memoryMiB"].optional(_positive),
        cap_mib=fields["capMiB"].optional(_positive),
        tolerance_mib=fields["toleranceMiB"].integer(at_least=0),
    )


def _enforcement(value: Field) -> Enforcement:
    fields = value.fields("action", "graceSeconds", "mechanism", optional=("noticeSeconds",))
    return Enforcement(
        action=fields["action"].enum(Action),
        grace_seconds=fields["graceSeconds"].integer(at_least=0),
        mechanism=fields["mechanism"].enum(Mechanism),
        notice_seconds=fields["noticeSeconds"].optional(lambda one: one.integer(at_least=0)),
    )


def _rollout(value: Field) -> Rollout:
    fields = value.fields("maxUnavailable", "onBusy", "drainTimeoutSeconds", optional=("paused", "windows"))
    nodes = fields["maxUnavailable"]
    return Rollout(
        max_unavailable=nodes.text(_PERCENT) if isinstance(nodes.value, str) else _positive(nodes),
        on_busy=fields["onBusy"].enum(OnBusy),
        drain_timeout_seconds=fields["drainTimeoutSeconds"].integer(at_least=0),
        is_paused=fields["paused"].optional(lambda one: one.boolean()) or False,
        windows=fields["windows"].optional(lambda one: tuple(map(_window, one.items()))) or (),
    )


def _window(value: Field) -> Window:
    fields = value.fields("days", "start", "durationSeconds", "timezone")
    return Window(
        days=tuple(day.text(_DAY) for day in fields["days"].items(at_least=1)),
        start=fields["start"].text(_TIME),
        duration_seconds=fields["durationSeconds"].integer(at_least=1, at_most=_MAX_WINDOW_SECONDS),
        timezone=fields["timezone"].text(_TIME_ZONE),
    )


def _positive(value: Field) -> int:
    return value.integer(at_least=1)
