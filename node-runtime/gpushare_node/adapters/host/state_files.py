"""The contents of the state directory's files, and how each is parsed. Values only; opens no file."""

from collections.abc import Mapping

from gpushare_node.contract.strict_document import Field
from gpushare_node.contract.struct import Struct, field


class InstanceSpec(Struct):
    """A GPU instance of a former layout: what rollback needs to create it again."""

    profile_id: int
    start: int
    size: int


class FormerGpu(Struct):
    """A GPU before the change: its mode, and its whole instances."""

    uuid: str
    mig: bool
    instances: tuple[InstanceSpec, ...]


class Journal(Struct):
    """The journal that a run writes before each step once it changes hardware.

    `attempts` counts the failed runs for this policy under this `driver`, the last one at `failed_at_seconds` of the boot's
    monotonic clock; `pending_modes` are the GPUs whose pending MIG mode this runtime requested; `paused` are labels of GPU
    clients with their values before the pause; `is_changing` is true from the first change until a whole layout, the new or
    the old, is in place. `is_new_layout`: that change is no repair, and no window delays what is left of it.
    `requested` is what AMD's config manager was asked for in this boot, at `requested_at_seconds` since 1970, until its answer
    is carried out; empty if nothing is. It `is_asked` once its label is known to have been written. `is_evicting`: the taint
    that the config manager needs is ours.
    """

    policy_digest: str
    boot_id: str
    attempts: int = 0
    driver: str = ""
    failed_at_seconds: int = 0
    former: tuple[FormerGpu, ...] = ()
    pending_modes: Mapping[str, bool] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    is_changing: bool = False
    is_new_layout: bool = False
    requested: str = ""
    requested_at_seconds: int = 0
    is_asked: bool = False
    is_evicting: bool = False


class Notice(Struct):
    """How long a container that ran before the first cap is exempt from it. Times are in seconds since 1970.

    `since` is when it was first notified of a date, or that there is none; `seconds` is the policy's current notice, None for
    as long as the container runs; `until` is the date in its last notice. A notice that `is_over` stays over.
    """

    since: int
    seconds: int | None
    until: int | None
    is_over: bool = False


class CapRecord(Struct):
    """How much of one device a container may use since its start. `cap_bytes` None: no cap.

    `notice`: the pool got a cap after that, and the container is exempt from it for this long.
    """

    device: str
    cap_bytes: int | None
    tolerance_bytes: int = 0
    notice: Notice | None = None


class KeptContainer(Struct):
    """A container's caps, with its pod's uid and its name there: a cap outlives restarts, and ends with the pod.

    Stored under the container runtime's id. Uid and name are empty if a release that did not know them wrote the file.
    """

    pod_uid: str
    name: str
    caps: tuple[CapRecord, ...]


class Published(Struct):
    """The profile that was published last, `a` or `b`, and the UUIDs of the devices that existed then."""

    key: str
    devices: frozenset[str]


class RepairMark(Struct):
    """The last repair that enforcement requested: for which finding, in which boot, at which second of its clock."""

    finding: str
    boot_id: str
    at_seconds: int


class UnselectedMark(Struct):
    """Since when no selector of the pool matches the node: in which boot, at which second of its clock.

    `is_ordered`: a person has ended the wait.
    """

    boot_id: str
    at_seconds: int
    is_ordered: bool = False


def read_journal(value: Field) -> Journal:
    """Return the journal in the value; PolicyError if it is not one."""
    fields = value.fields(
        "policy_digest",
        "boot_id",
        "attempts",
        "driver",
        "failed_at_seconds",
        "former",
        "pending_modes",
        "paused",
        "is_changing",
        optional=("is_new_layout", "requested", "requested_at_seconds", "is_asked", "is_evicting"),
    )
    return Journal(
        policy_digest=fields["policy_digest"].text(),
        boot_id=fields["boot_id"].text(),
        attempts=fields["attempts"].integer(at_least=0),
        driver=fields["driver"].text(),
        failed_at_seconds=fields["failed_at_seconds"].integer(at_least=0),
        former=tuple(_former(item) for item in fields["former"].items()),
        pending_modes={uuid: mode.boolean() for uuid, mode in fields["pending_modes"].entries()},
        paused={label: former.text() for label, former in fields["paused"].entries()},
        is_changing=fields["is_changing"].boolean(),
        is_new_layout=fields["is_new_layout"].optional(lambda one: one.boolean()) or False,
        requested=fields["requested"].optional(lambda one: one.text()) or "",
        requested_at_seconds=fields["requested_at_seconds"].optional(lambda one: one.integer(at_least=0)) or 0,
        is_asked=fields["is_asked"].optional(lambda one: one.boolean()) or False,
        is_evicting=fields["is_evicting"].optional(lambda one: one.boolean()) or False,
    )


def _former(value: Field) -> FormerGpu:
    fields = value.fields("uuid", "mig", "instances")
    return FormerGpu(
        uuid=fields["uuid"].text(at_least=1),
        mig=fields["mig"].boolean(),
        instances=tuple(_remembered(item) for item in fields["instances"].items()),
    )


def _remembered(value: Field) -> InstanceSpec:
    fields = value.fields("profile_id", "start", "size")
    return InstanceSpec(**{name: one.integer(at_least=0) for name, one in fields.items()})


def read_caps(value: Field) -> Mapping[str, KeptContainer]:
    """Return the stored caps in the value; PolicyError if it does not contain them."""
    return {container: _kept_container(kept) for container, kept in value.entries()}


def _kept_container(value: Field) -> KeptContainer:
    if isinstance(value.value, list):
        return KeptContainer(pod_uid="", name="", caps=_kept_caps(value))
    fields = value.fields("pod_uid", "name", "caps")
    return KeptContainer(pod_uid=fields["pod_uid"].text(), name=fields["name"].text(), caps=_kept_caps(fields["caps"]))


def _kept_caps(value: Field) -> tuple[CapRecord, ...]:
    return tuple(_kept_cap(item) for item in value.items())


def _kept_cap(value: Field) -> CapRecord:
    fields = value.fields("device", "cap_bytes", "tolerance_bytes", optional=("notice",))
    return CapRecord(
        device=fields["device"].text(at_least=1),
        cap_bytes=fields["cap_bytes"].optional(_count),
        tolerance_bytes=_count(fields["tolerance_bytes"]),
        notice=fields["notice"].optional(_notice),
    )


def _notice(value: Field) -> Notice:
    fields = value.fields("since", "seconds", "until", "is_over")
    return Notice(
        since=_count(fields["since"]),
        seconds=fields["seconds"].optional(_count),
        until=fields["until"].optional(_count),
        is_over=fields["is_over"].boolean(),
    )


class FirstCaps(Struct):
    """When this node began to enforce caps, in seconds since 1970, and the ids of the containers that ran then."""

    since: int
    older: frozenset[str] = frozenset()


def read_first_caps(value: Field) -> FirstCaps:
    """Return the beginning of enforcement; PolicyError if the value does not contain it."""
    fields = value.fields("since", "older")
    return FirstCaps(since=_count(fields["since"]), older=frozenset(one.text() for one in fields["older"].items()))


def _count(value: Field) -> int:
    return value.integer(at_least=0)


def read_published(value: Field) -> Published:
    """Return the published profile in the value; PolicyError if it is not one."""
    fields = value.fields("key", "devices")
    return Published(key=fields["key"].text(), devices=frozenset(item.text() for item in fields["devices"].items()))


def read_repair_mark(value: Field) -> RepairMark:
    """Return the repair mark in the value; PolicyError if it is not one."""
    fields = value.fields("finding", "boot_id", "at_seconds")
    return RepairMark(
        finding=fields["finding"].text(),
        boot_id=fields["boot_id"].text(),
        at_seconds=fields["at_seconds"].integer(at_least=0),
    )


def read_faults(value: Field) -> tuple[str, dict[str, int]]:
    """Return in which boot which XID was heard of which GPU; PolicyError if the value does not say that."""
    fields = value.fields("boot_id", "xids")
    return fields["boot_id"].text(), {uuid: xid.integer(at_least=0) for uuid, xid in fields["xids"].entries()}


def read_unselected_mark(value: Field) -> UnselectedMark:
    """Return the mark in the value; PolicyError if it is not one."""
    fields = value.fields("boot_id", "at_seconds", "is_ordered")
    return UnselectedMark(
        boot_id=fields["boot_id"].text(),
        at_seconds=fields["at_seconds"].integer(at_least=0),
        is_ordered=fields["is_ordered"].boolean(),
    )
