"""The cluster intent as values: what the user asked for, every default filled, nothing yet judged against a card.

Owns the Intent type and its building from a document that passed the schema; `build` is total for those. Units are in
the names. Every default here is part of v1 for ever: changing one would relabel every node.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, assert_never

from gpushare.units import Share, parse_duration, parse_quantity, parse_share


class Stack(StrEnum):
    """Which upstream chart serves the shares."""

    GPU_OPERATOR = "gpu-operator"
    DEVICE_PLUGIN = "device-plugin"
    EXISTING = "existing"


class Partitioner(StrEnum):
    """Who brings GPUs to their MIG layout."""

    GPUSHARE = "gpushare"
    MIG_MANAGER = "mig-manager"


class Mode(StrEnum):
    """How a pool shares its GPUs."""

    EXCLUSIVE = "exclusive"
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    MIG = "mig"


class SharePlacement(StrEnum):
    """Which device gets the next share: `spread` the emptiest, `pack` the fullest."""

    SPREAD = "spread"
    PACK = "pack"


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


class Action(StrEnum):
    """What happens to a container over its cap."""

    KILL = "kill"
    EVICT = "evict"
    WARN = "warn"
    NONE = "none"


class Mechanism(StrEnum):
    """What enforces the cap; `auto` is the strongest that the node has."""

    AUTO = "auto"
    DRIVER = "driver"
    MPS = "mps"
    WATCHER = "watcher"


class OnBusy(StrEnum):
    """What a change does when the GPUs it must touch are in use."""

    WAIT = "wait"
    EVICT = "evict"
    FAIL = "fail"


class AdmissionMode(StrEnum):
    """How admission policies treat a violation."""

    DENY = "deny"
    WARN = "warn"
    AUDIT = "audit"
    NONE = "none"


@dataclass(frozen=True, kw_only=True)
class Expression:
    """One requirement on one node label."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class NodeSelector:
    """Which nodes a pool has: all parts that are given must hold. `names` empty: any name."""

    match_labels: tuple[tuple[str, str], ...] = ()
    match_expressions: tuple[Expression, ...] = ()
    names: tuple[str, ...] = ()
    expected: int | None = None

    @property
    def count(self) -> int | None:
        """How many nodes capacity is reported for: the names' number, else `expected`, else unknown."""
        return len(self.names) if self.names else self.expected


@dataclass(frozen=True, kw_only=True)
class Exclusive:
    """Whole GPUs."""


@dataclass(frozen=True, kw_only=True)
class TimeSlicing:
    """Every GPU offered `replicas` times, one after the other in time, without memory isolation."""

    replicas: int
    rename: bool = True
    placement: SharePlacement = SharePlacement.SPREAD


@dataclass(frozen=True, kw_only=True)
class Mps:
    """Every GPU offered `replicas` times through the device plugin's MPS daemon."""

    replicas: int
    rename: bool = True
    placement: SharePlacement = SharePlacement.SPREAD


Layout = tuple[tuple[str, int], ...]
"""A MIG layout: (profile name, count) in the user's order, counts ≥ 1; the empty tuple is `none`, a whole GPU."""


@dataclass(frozen=True, kw_only=True)
class LayoutGroup:
    """GPUs of a node, by index, that get the same layout."""

    gpus: tuple[int, ...]
    layout: Layout


@dataclass(frozen=True, kw_only=True)
class MostInstances:
    """Goal: as many instances as the card allows."""


@dataclass(frozen=True, kw_only=True)
class Balanced:
    """Goal: sizes side by side, as the field's `all-balanced`."""


@dataclass(frozen=True, kw_only=True)
class Instances:
    """Goal: exactly `count` instances, the smallest of them as large as can be."""

    count: int


@dataclass(frozen=True, kw_only=True)
class MemoryEach:
    """Goal: the most instances with at least `size_bytes` usable each."""

    size_bytes: int


Goal = MostInstances | Balanced | Instances | MemoryEach


@dataclass(frozen=True, kw_only=True)
class Mig:
    """Hardware partitions: `wanted` is one layout for all GPUs, groups by index, or a goal that the compiler resolves.

    `replicas` adds time-slicing: one number for every profile, or (profile, number) pairs; empty: none.
    """

    wanted: Layout | tuple[LayoutGroup, ...] | Goal
    strategy: MigStrategy = MigStrategy.MIXED
    replicas: int | tuple[tuple[str, int], ...] = ()
    rename: bool = True
    placement: SharePlacement = SharePlacement.SPREAD


Sharing = Exclusive | TimeSlicing | Mps | Mig

CapValue = int | CapWord
"""A cap: bytes, `even` or `none`."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Memory caps of a pool. `cap` None: not given (`even` where devices are shared). A tuple maps MIG profiles to caps.

    `reserve` None: the default, the larger of 3 % and 256 MiB.
    """

    cap: CapValue | tuple[tuple[str, CapValue], ...] | None = None
    reserve: Share | None = None
    oversubscribe_percent: int = 100


@dataclass(frozen=True, kw_only=True)
class Enforcement:
    """How a cap is held. `tolerance` is bytes or a percentage of the cap."""

    action: Action = Action.KILL
    grace_seconds: int = 10
    tolerance: Share = field(default_factory=lambda: Share(bytes=0))
    mechanism: Mechanism = Mechanism.AUTO


@dataclass(frozen=True, kw_only=True)
class Rollout:
    """How a change reaches nodes. `max_unavailable` is a number of nodes or a percentage such as `10%`."""

    max_unavailable: int | str = 1
    on_busy: OnBusy = OnBusy.WAIT
    drain_timeout_seconds: int = 1800


@dataclass(frozen=True, kw_only=True)
class Require:
    """What the card must have. None: not asked."""

    nvlink: bool | None = None
    ecc: bool | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Pool:
    """Nodes of one card model, shared in one way."""

    name: str
    card: str
    nodes: NodeSelector
    gpus_per_node: int
    sharing: Sharing
    priority: int = 0
    memory: Memory = field(default_factory=Memory)
    enforcement: Enforcement = field(default_factory=Enforcement)
    rollout: Rollout = field(default_factory=Rollout)
    require: Require = field(default_factory=Require)
    namespaces: tuple[str, ...] = ()
    tolerations: tuple[Mapping[str, Any], ...] = ()

    @property
    def mode(self) -> Mode:
        """The pool's mode as the user wrote it."""
        match self.sharing:
            case Exclusive():
                return Mode.EXCLUSIVE
            case TimeSlicing():
                return Mode.TIME_SLICING
            case Mps():
                return Mode.MPS
            case Mig():
                return Mode.MIG


@dataclass(frozen=True, kw_only=True)
class Driver:
    """The GPU driver that the operator installs; None fields are the operator's own choice."""

    repository: str | None = None
    image: str | None = None
    version: str | None = None


@dataclass(frozen=True, kw_only=True)
class Platform:
    """The upstream stack beside gpushare. `driver` None: drivers are on the nodes. `version` None: the newest known."""

    stack: Stack = Stack.GPU_OPERATOR
    version: str | None = None
    partitioner: Partitioner = Partitioner.GPUSHARE
    driver: Driver | None = None
    registry: str | None = None
    image_pull_secrets: tuple[str, ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What one namespace may hold of one pool.

    Exactly one of the three is set: `shares` (a bare count), `per_resource` ((name as the user wrote it, count) pairs: a MIG
    profile name), `memory_bytes`.
    """

    namespace: str
    pool: str
    shares: int | None = None
    per_resource: tuple[tuple[str, int], ...] = ()
    memory_bytes: int | None = None


@dataclass(frozen=True, kw_only=True)
class Intent:
    """One cluster. `pools` and `quotas` are in the user's order; `cards` are card documents keyed by id."""

    name: str
    pools: tuple[Pool, ...]
    kubernetes: tuple[int, int] = (1, 30)
    namespace: str = "gpu-system"
    platform: Platform = field(default_factory=Platform)
    quotas: tuple[Quota, ...] = ()
    admission: AdmissionMode = AdmissionMode.DENY
    monitoring: Mapping[str, Any] = field(default_factory=dict)
    gitops: Mapping[str, Any] = field(default_factory=dict)
    cards: Mapping[str, Any] = field(default_factory=dict)


Document = Mapping[str, Any]


def build(document: Document) -> Intent:
    """The intent that a document asks for, with every default. Total for documents that `schema.check` lets pass."""
    spec: Document = document["spec"]
    return Intent(
        name=document["metadata"]["name"],
        pools=tuple(_pool(name, pool) for name, pool in spec["pools"].items()),
        kubernetes=_version(spec.get("kubernetes", "1.30")),
        namespace=spec.get("namespace", "gpu-system"),
        platform=_platform(spec.get("platform", {})),
        quotas=tuple(
            _quota(namespace, pool, limit)
            for namespace, limits in spec.get("quotas", {}).items()
            for pool, limit in limits.items()
        ),
        admission=AdmissionMode(spec.get("admission", {}).get("enforce", "deny")),
        monitoring=spec.get("monitoring", {}),
        gitops=spec.get("gitops", {}),
        cards=spec.get("cards", {}),
    )


def _version(text: str) -> tuple[int, int]:
    major, minor = text.split(".")
    return int(major), int(minor)


def _platform(document: Document) -> Platform:
    driver = document.get("driver")
    return Platform(
        stack=Stack(document.get("stack", "gpu-operator")),
        version=document.get("version"),
        partitioner=Partitioner(document.get("partitioner", "gpushare")),
        driver=None if driver is None else Driver(**driver),
        registry=document.get("registry"),
        image_pull_secrets=tuple(document.get("imagePullSecrets", ())),
        values=document.get("values", {}),
    )


def _pool(name: str, document: Document) -> Pool:
    return Pool(
        name=name,
        card=document["card"],
        nodes=_nodes(document["nodes"]),
        gpus_per_node=int(document["gpusPerNode"]),
        sharing=_sharing(document["sharing"]),
        priority=int(document.get("priority", 0)),
        memory=_memory(document.get("memory", {})),
        enforcement=_enforcement(document.get("enforcement", {})),
        rollout=_rollout(document.get("rollout", {})),
        require=_require(document.get("require", {})),
        namespaces=tuple(document.get("namespaces", ())),
        tolerations=tuple(document.get("tolerations", ())),
    )


def _nodes(document: Document) -> NodeSelector:
    expected = document.get("expected")
    return NodeSelector(
        match_labels=tuple(document.get("matchLabels", {}).items()),
        match_expressions=tuple(
            Expression(key=part["key"], operator=Operator(part["operator"]), values=tuple(part.get("values", ())))
            for part in document.get("matchExpressions", ())
        ),
        names=tuple(document.get("names", ())),
        expected=None if expected is None else int(expected),
    )


def _sharing(document: Document) -> Sharing:
    mode = Mode(document["mode"])
    rename, placement = document.get("rename", True), SharePlacement(document.get("placement", "spread"))
    match mode:
        case Mode.EXCLUSIVE:
            return Exclusive()
        case Mode.TIME_SLICING:
            return TimeSlicing(replicas=int(document["replicas"]), rename=rename, placement=placement)
        case Mode.MPS:
            return Mps(replicas=int(document["replicas"]), rename=rename, placement=placement)
        case Mode.MIG:
            replicas = document.get("replicas", {})
            return Mig(
                wanted=_wanted(document),
                strategy=MigStrategy(document.get("strategy", "mixed")),
                replicas=_counts(replicas) if isinstance(replicas, dict) else int(replicas),
                rename=rename,
                placement=placement,
            )
    assert_never(mode)


def _wanted(document: Document) -> Layout | tuple[LayoutGroup, ...] | Goal:
    if "layout" in document:
        return _layout(document["layout"])
    if "layouts" in document:
        return tuple(
            LayoutGroup(gpus=tuple(int(index) for index in group["gpus"]), layout=_layout(group["layout"]))
            for group in document["layouts"]
        )
    goal = document["goal"]
    if isinstance(goal, str):
        return MostInstances() if goal == "most-instances" else Balanced()
    return Instances(count=int(goal["instances"])) if "instances" in goal else MemoryEach(size_bytes=_bytes(goal["memory"]))


def _layout(document: Document | str) -> Layout:
    return () if isinstance(document, str) else _counts(document)


def _counts(document: Document) -> tuple[tuple[str, int], ...]:
    return tuple((name, int(count)) for name, count in document.items())


def _bytes(value: str | float) -> int:
    return _known(parse_quantity(value if isinstance(value, str) else int(value)), value)


def _share(value: str | float) -> Share:
    return _known(parse_share(value if isinstance(value, str) else int(value)), value)


def _seconds(value: str) -> int:
    return _known(parse_duration(value), value)


_T = TypeVar("_T")


def _known(parsed: _T | None, value: object) -> _T:
    if parsed is None:
        raise AssertionError(f"the schema let {value!r} pass, but the parser does not read it")
    return parsed


def _memory(document: Document) -> Memory:
    cap, reserve = document.get("cap"), document.get("reserve")
    by_profile = tuple((name, _cap(value)) for name, value in cap.items()) if isinstance(cap, dict) else None
    return Memory(
        cap=None if cap is None else by_profile or _cap(cap),
        reserve=None if reserve is None else _share(reserve),
        oversubscribe_percent=int(document.get("oversubscribe", "100%").removesuffix("%")),
    )


def _cap(value: str | float) -> CapValue:
    return CapWord(value) if value in ("even", "none") else _bytes(value)


def _enforcement(document: Document) -> Enforcement:
    return Enforcement(
        action=Action(document.get("action", "kill")),
        grace_seconds=_seconds(document.get("grace", "10s")),
        tolerance=_share(document.get("tolerance", 0)),
        mechanism=Mechanism(document.get("mechanism", "auto")),
    )


def _rollout(document: Document) -> Rollout:
    most = document.get("maxUnavailable", 1)
    return Rollout(
        max_unavailable=most if isinstance(most, str) else int(most),
        on_busy=OnBusy(document.get("onBusy", "wait")),
        drain_timeout_seconds=_seconds(document.get("drainTimeout", "30m")),
    )


def _require(document: Document) -> Require:
    memory = document.get("memory")
    least = None if memory is None else _bytes(memory)
    return Require(nvlink=document.get("nvlink"), ecc=document.get("ecc"), memory_bytes=least)


def _quota(namespace: str, pool: str, limit: Document | float) -> Quota:
    if not isinstance(limit, dict):
        return Quota(namespace=namespace, pool=pool, shares=int(limit))  # type: ignore[arg-type]  # the schema: a number or a mapping
    if "memory" in limit:
        return Quota(namespace=namespace, pool=pool, memory_bytes=_bytes(limit["memory"]))
    return Quota(namespace=namespace, pool=pool, per_resource=_counts(limit))
