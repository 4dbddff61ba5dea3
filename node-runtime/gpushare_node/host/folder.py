"""The runtime's folder on the host, `/var/lib/gpushare`: what must outlive a pod; the values in it.

Every write is atomic and durable: a file beside it, fsync, rename, fsync of the folder. What cannot be read is as good as
absent, and said; hardware decides, the folder only remembers.
"""

import errno
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from gpushare_node.document import PolicyError, Value
from gpushare_node.host.files import Files

DEFAULT = "/var/lib/gpushare"

_LOCK, _JOURNAL, _POLICY, _CAPS, _PROFILE, _REBOOT, _REPAIR = (
    "lock", "journal.json", "policy.json", "caps.json", "profile.json", "reboot.json", "repair.json")


_VERSION = 1
"""Of what is written here. What has another version was written by another release and is as good as absent."""

_Kept = TypeVar("_Kept")


class FolderError(Exception):
    """The folder cannot be written, or another runtime holds its lock. The text says what to do."""


class FolderLockedError(FolderError):
    """Another runtime holds the lock: the one case in which this program ends with exit code 75."""


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """A GPU instance of a former layout. What rollback needs to make it again."""

    profile_id: int
    start: int
    size: int


@dataclass(frozen=True, kw_only=True)
class FormerGpu:
    """A GPU before the change: its mode, and its whole instances."""

    uuid: str
    mig: bool
    instances: tuple[Remembered, ...]


@dataclass(frozen=True, kw_only=True)
class Journal:
    """What a run that has begun to change hardware writes down before each step.

    `attempts` counts runs for this policy that failed; `pending_modes` are the GPUs of which this runtime has asked for
    the MIG mode that waits; `paused` are labels of GPU clients with their values before the pause.
    """

    policy_digest: str
    boot_id: str
    attempts: int = 0
    former: tuple[FormerGpu, ...] = ()
    pending_modes: Mapping[str, bool] = field(default_factory=dict)
    paused: Mapping[str, str] = field(default_factory=dict)
    is_changing: bool = False


@dataclass(frozen=True, kw_only=True)
class KeptCap:
    """What a container may use of one device since it was started. `cap_bytes` None: as much as there is.

    Kept by the container runtime's id of the container: `Folder.caps` and `Folder.keep_caps` speak of
    `Mapping[str, tuple[KeptCap, ...]]`.
    """

    device: str
    cap_bytes: int | None
    tolerance_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class Published:
    """The profile that was published last, `a` or `b`, and the UUIDs of the devices that stood then."""

    key: str
    devices: frozenset[str]


@dataclass(frozen=True, kw_only=True)
class RebootMark:
    """The reboot that was asked for: for which policy, and in which boot. A policy gets one, ever."""

    policy_digest: str
    boot_id: str


@dataclass(frozen=True, kw_only=True)
class RepairMark:
    """The last repair that enforcement has asked for: of which finding, in which boot, at how many seconds of its clock."""

    finding: str
    boot_id: str
    at_seconds: int


class Folder:
    """The folder. Readers never fail: what cannot be read is None, and `problems` says why. Writers raise FolderError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = Files(path)
        self._problems: dict[str, str] = {}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only runtime that changes this node. FolderLockedError if another is, FolderError if it cannot be written."""
        held = self._files.lock(_LOCK)
        try:
            held.__enter__()
        except BlockingIOError as error:
            raise FolderLockedError(f"another gpushare-node is at work: it holds {self.path / _LOCK}; wait for it") from error
        except OSError as error:
            raise self._unwritable(_LOCK, error) from error
        try:
            self._writing(_LOCK, self._files.sweep)
            yield
        finally:
            held.__exit__(None, None, None)

    def journal(self) -> Journal | None:
        """What the last run that began to change hardware wrote down."""
        return self._read(_JOURNAL, _journal)

    def write_journal(self, journal: Journal) -> None:
        """Write it down, durably."""
        self._write(_JOURNAL, asdict(journal))

    def clear_journal(self) -> None:
        """Nothing is under way any more."""
        self._writing(_JOURNAL, lambda: self._files.delete(_JOURNAL))

    def policy(self) -> str | None:
        """The text of the last policy in force."""
        return self._read(_POLICY, Value.text)

    def keep_policy(self, text: str) -> None:
        """Keep the policy that is in force now."""
        self._write(_POLICY, text)

    def caps(self) -> Mapping[str, tuple[KeptCap, ...]]:
        """The caps under which containers were started, by the container runtime's id; empty if nothing is known."""
        return self._read(_CAPS, _caps) or {}

    def keep_caps(self, caps: Mapping[str, tuple[KeptCap, ...]]) -> None:
        """Keep these, and no others."""
        self._write(_CAPS, {container: [asdict(cap) for cap in kept] for container, kept in caps.items()})

    def profile(self) -> Published | None:
        """What was published last."""
        return self._read(_PROFILE, _published)

    def keep_profile(self, key: str, devices: Collection[str]) -> None:
        """Keep which profile, `…-a` or `…-b`, is published now, and for which devices."""
        self._write(_PROFILE, {"key": key, "devices": sorted(devices)})

    def rebooted(self) -> RebootMark | None:
        """The last reboot that was asked for."""
        return self._read(_REBOOT, _reboot_mark)

    def mark_reboot(self, policy_digest: str, boot_id: str) -> None:
        """A reboot is asked for next. To be written before it is."""
        self._write(_REBOOT, {"policy_digest": policy_digest, "boot_id": boot_id})

    def repaired(self) -> RepairMark | None:
        """The last repair that was asked for."""
        return self._read(_REPAIR, _repair_mark)

    def mark_repair(self, mark: RepairMark) -> None:
        """A repair is asked for next. To be written before it is, or it would be asked for again and again."""
        self._write(_REPAIR, asdict(mark))

    def remove(self) -> None:
        """Delete all of it. The folder itself stays where it is a mount point, or where others put files into it."""
        if not self.path.is_dir():
            return
        self._writing(_LOCK, self._files.sweep)
        for name in (_JOURNAL, _POLICY, _CAPS, _PROFILE, _REBOOT, _REPAIR, _LOCK):
            self._writing(name, lambda name=name: self._files.delete(name))  # type: ignore[misc]
        try:
            self.path.rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.EROFS):
                raise self._unwritable(".", error) from error

    def problems(self) -> tuple[str, ...]:
        """One sentence for each file that could not be read and so counts as absent."""
        return tuple(self._problems.values())

    def _read(self, name: str, parse: Callable[[Value], _Kept]) -> _Kept | None:
        self._problems.pop(name, None)
        try:
            content = self._files.read(name)
            return None if content is None else parse(_content(content))
        except PolicyError as error:
            why = str(error)
        except (ValueError, RecursionError) as error:
            why = f"it is not JSON: {error}"
        except OSError as error:
            why = error.strerror or str(error)
        self._problems[name] = f"{self.path / name} cannot be used and counts as absent: {why}"
        return None

    def _write(self, name: str, content: object) -> None:
        text = json.dumps({"version": _VERSION, "content": content}, indent=1, sort_keys=True)
        self._writing(name, lambda: self._files.write(name, text.encode()))

    def _writing(self, name: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise self._unwritable(name, error) from error

    def _unwritable(self, name: str, error: OSError) -> FolderError:
        return FolderError(f"{self.path / name} cannot be written: {error.strerror}; nothing is changed without it")


def _content(text: bytes) -> Value:
    whole = Value(value=json.loads(text)).fields("version", "content")
    whole["version"].whole(at_least=_VERSION, at_most=_VERSION)
    return whole["content"]


def _journal(value: Value) -> Journal:
    fields = value.fields("policy_digest", "boot_id", "attempts", "former", "pending_modes", "paused", "is_changing")
    return Journal(
        policy_digest=fields["policy_digest"].text(),
        boot_id=fields["boot_id"].text(),
        attempts=fields["attempts"].whole(at_least=0),
        former=tuple(_former(one) for one in fields["former"].items()),
        pending_modes={uuid: mode.flag() for uuid, mode in fields["pending_modes"].entries()},
        paused={label: former.text() for label, former in fields["paused"].entries()},
        is_changing=fields["is_changing"].flag(),
    )


def _former(value: Value) -> FormerGpu:
    fields = value.fields("uuid", "mig", "instances")
    return FormerGpu(
        uuid=fields["uuid"].text(at_least=1),
        mig=fields["mig"].flag(),
        instances=tuple(_remembered(one) for one in fields["instances"].items()),
    )


def _remembered(value: Value) -> Remembered:
    fields = value.fields("profile_id", "start", "size")
    return Remembered(**{name: one.whole(at_least=0) for name, one in fields.items()})


def _caps(value: Value) -> Mapping[str, tuple[KeptCap, ...]]:
    return {container: tuple(_kept_cap(one) for one in kept.items()) for container, kept in value.entries()}


def _kept_cap(value: Value) -> KeptCap:
    fields = value.fields("device", "cap_bytes", "tolerance_bytes")
    return KeptCap(
        device=fields["device"].text(at_least=1),
        cap_bytes=fields["cap_bytes"].optional(lambda one: one.whole(at_least=0)),
        tolerance_bytes=fields["tolerance_bytes"].whole(at_least=0),
    )


def _published(value: Value) -> Published:
    fields = value.fields("key", "devices")
    return Published(key=fields["key"].text(), devices=frozenset(one.text() for one in fields["devices"].items()))


def _reboot_mark(value: Value) -> RebootMark:
    fields = value.fields("policy_digest", "boot_id")
    return RebootMark(policy_digest=fields["policy_digest"].text(), boot_id=fields["boot_id"].text())


def _repair_mark(value: Value) -> RepairMark:
    fields = value.fields("finding", "boot_id", "at_seconds")
    return RepairMark(
        finding=fields["finding"].text(),
        boot_id=fields["boot_id"].text(),
        at_seconds=fields["at_seconds"].whole(at_least=0),
    )
