"""StateDir: the runtime's directory on the host, `/var/lib/gpushare`, for state that must outlive a pod.

Every write is atomic and durable. A file that cannot be read counts as absent, and `problems` reports it; the hardware decides,
the directory only records.
"""

import errno
import fcntl
import json
import logging
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from gpushare_node.adapters.host.state_files import (
    CapRecord,
    FirstCaps,
    FormerGpu,
    InstanceSpec,
    Journal,
    KeptContainer,
    Notice,
    Published,
    RepairMark,
    UnselectedMark,
    read_caps,
    read_faults,
    read_first_caps,
    read_journal,
    read_published,
    read_repair_mark,
    read_unselected_mark,
)
from gpushare_node.contract.strict_document import Field, PolicyError
from gpushare_node.contract.struct import content_of

_MAX_BYTES = 4 << 20
"""More than any file here ever contains; a larger file is not ours."""

_HALF_WRITTEN = ".new"


class Files:
    """One directory, mode 0700, its files 0600, read without following links. Owns no contents. Every method raises OSError.

    A write creates a file beside the old one, fsyncs and renames it, and fsyncs the directory: after a crash either the old or
    the new file exists.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, name: str) -> bytes | None:
        """Return the file's content; None if there is no file. A link, or a file that is too large, is an OSError."""
        try:
            with self._directory() as directory:
                handle = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=directory)
        except FileNotFoundError:
            return None
        with os.fdopen(handle, "rb") as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), name)
        return content

    def written_at(self, name: str) -> float | None:
        """Return when the file was written, in seconds since 1970; None if there is no file."""
        try:
            with self._directory() as directory:
                return os.stat(name, dir_fd=directory, follow_symlinks=False).st_mtime
        except FileNotFoundError:
            return None

    def write(self, name: str, content: bytes) -> None:
        """Replace the file with this content. If that fails, the former file is kept."""
        self._make()
        # Two writers, of one program or of two, must not meet in one file.
        new = f"{name}.{os.getpid()}-{threading.get_ident()}{_HALF_WRITTEN}"
        with self._directory() as directory:
            try:
                self._put(new, content, directory)
                os.rename(new, name, src_dir_fd=directory, dst_dir_fd=directory)
            except OSError:
                with suppress(OSError):
                    os.unlink(new, dir_fd=directory)
                raise
            os.fsync(directory)

    def delete(self, name: str) -> None:
        """Delete the file, if there is one. Works on a full disk."""
        with suppress(FileNotFoundError), self._directory() as directory:
            os.unlink(name, dir_fd=directory)
            os.fsync(directory)

    def sweep(self) -> None:
        """Delete the half-written files that a crash left."""
        for path in self.path.glob(f"*{_HALF_WRITTEN}"):
            self.delete(path.name)

    @contextmanager
    def lock(self, name: str) -> Iterator[None]:
        """Hold the lock of this name; BlockingIOError if another process does. The kernel releases it when its holder ends."""
        self._make()
        with self._directory() as directory:
            handle = os.open(name, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=directory)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            yield
        finally:
            os.close(handle)

    def _make(self) -> None:
        """Create the directory with mode 0700. Kubelet creates that of a hostPath with 0755, so an existing one is changed."""
        self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._directory() as directory:
            if os.fstat(directory).st_mode & 0o777 != 0o700:
                os.fchmod(directory, 0o700)

    @contextmanager
    def _directory(self) -> Iterator[int]:
        directory = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            yield directory
        finally:
            os.close(directory)

    def _put(self, name: str, content: bytes, directory: int) -> None:
        # Replaces a half-written file of a crash, and does not write through a link in its place.
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=directory)
        handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=directory)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)


__all__ = [
    "CapRecord",
    "FormerGpu",
    "InstanceSpec",
    "Journal",
    "KeptContainer",
    "Notice",
    "Published",
    "RepairMark",
    "StateDir",
    "StateDirError",
    "StateDirLockedError",
    "UnselectedMark",
]

_LOCK, _JOURNAL, _POLICY, _CAPS, _FIRST_CAPS, _PROFILE, _REPAIR, _SLOT, _UNSELECTED, _FAULTS = (
    "lock",
    "journal.json",
    "policy.json",
    "caps.json",
    "first-caps.json",
    "profile.json",
    "repair.json",
    "turn.json",
    "unselected.json",
    "faults.json",
)

_VERSION = 1
"""The version of these files. A file with another version was written by another release and counts as absent."""

_Kept = TypeVar("_Kept")


_LOG = logging.getLogger(__name__)


class StateDirError(Exception):
    """The directory cannot be written, or another runtime holds its lock. The text names the remedy."""


class StateDirLockedError(StateDirError):
    """Another runtime holds the lock: the only case in which this program ends with exit code 75."""


class StateDir:
    """The directory. Readers never fail: an unreadable file is None; `problems` has the reason. Writers raise StateDirError."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._files = Files(path)
        self._problems: dict[str, str] = {}
        self._unwritten: dict[str, str] = {}

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Be the only runtime that changes this node. StateDirLockedError if another is; StateDirError if not writable."""
        held = self._files.lock(_LOCK)
        try:
            held.__enter__()
        except BlockingIOError as error:
            raise StateDirLockedError(
                f"another gpushare-node is running: it holds {self.path / _LOCK}; wait until it exits"
            ) from error
        except OSError as error:
            raise self._unwritable(_LOCK, error) from error
        try:
            self._writing(_LOCK, self._files.sweep)
            yield
        finally:
            held.__exit__(None, None, None)

    def journal(self) -> Journal | None:
        """Return the journal of the last run that began to change hardware."""
        return self._read(_JOURNAL, read_journal)

    def write_journal(self, journal: Journal) -> None:
        """Write the journal durably."""
        self._write(_JOURNAL, journal)

    def clear_journal(self) -> None:
        """Delete the journal, because no change is in progress any more."""
        self._write(_JOURNAL, None)

    def policy(self) -> str | None:
        """Return the text of the last policy in force."""
        return self._read(_POLICY, Field.text)

    def keep_policy(self, text: str) -> None:
        """Store the policy that is in force now."""
        self._write(_POLICY, text)

    def caps(self) -> Mapping[str, KeptContainer]:
        """Return the caps under which containers were started, by the container runtime's id; empty if unknown."""
        return self._read(_CAPS, read_caps) or {}

    def keep_caps(self, caps: Mapping[str, KeptContainer]) -> None:
        """Store these, and no others, with the fields that another release has stored with them."""
        former = self._read(_CAPS, lambda content: content.value) or {}
        self._write(_CAPS, {name: _with_fields_of(former.get(name), content_of(kept)) for name, kept in caps.items()})

    def first_caps(self) -> FirstCaps | None:
        """Return when this node began to enforce caps, and what ran then; None if it has not begun.

        Where caps are stored and their beginning is lost, nothing is older.
        """
        found = self._read(_FIRST_CAPS, read_first_caps)
        has_held = any(cap.cap_bytes is not None for kept in self.caps().values() for cap in kept.caps)
        return FirstCaps(since=0) if found is None and has_held else found

    def keep_first_caps(self, first: FirstCaps) -> None:
        """Store this beginning. It is stored once: what ran then is exempt, and nothing else ever will be."""
        self._write(_FIRST_CAPS, {"since": first.since, "older": sorted(first.older)})

    def profile(self) -> Published | None:
        """Return what was published last."""
        return self._read(_PROFILE, read_published)

    def keep_profile(self, key: str, devices: Collection[str]) -> None:
        """Store which profile, `…-a` or `…-b`, is published now, and for which devices."""
        self._write(_PROFILE, {"key": key, "devices": sorted(devices)})

    def changed_at(self) -> float | None:
        """Return when the policy in force or the published profile last changed, in seconds since 1970; None if unknown."""
        try:
            written = [at for at in map(self._files.written_at, (_POLICY, _PROFILE)) if at is not None]
        except OSError:
            return None
        return max(written, default=None)

    def repaired(self) -> RepairMark | None:
        """Return the last repair that was requested."""
        return self._read(_REPAIR, read_repair_mark)

    def mark_repair(self, mark: RepairMark) -> None:
        """Record the repair that is requested next. Write this before the request, or it would be repeated without end."""
        self._write(_REPAIR, mark)

    def unselected(self) -> UnselectedMark | None:
        """Return since when no selector of the pool matches the node; None if one does."""
        return self._read(_UNSELECTED, read_unselected_mark)

    def mark_unselected(self, mark: UnselectedMark | None) -> None:
        """Store this; None: the node is selected again."""
        self._write(_UNSELECTED, mark)

    def faults(self) -> tuple[str, dict[str, int]]:
        """Return the boot in which XIDs were heard that only a reset ends, and the last one of each GPU by its UUID."""
        return self._read(_FAULTS, read_faults) or ("", {})

    def keep_faults(self, boot_id: str, xids: Mapping[str, int]) -> None:
        """Store these instead; without any the file goes."""
        self._write(_FAULTS, {"boot_id": boot_id, "xids": dict(xids)} if xids else None)

    def slot(self) -> str | None:
        """Return the name of the Lease that holds the node's rollout slot, or was about to."""
        return self._read(_SLOT, Field.text)

    def keep_slot(self, name: str | None) -> None:
        """Store its name; None: the node has none any more. Write this before the Lease."""
        self._write(_SLOT, name)

    def remove(self) -> None:
        """Delete everything. The directory itself stays if it is a mount point, or if it contains files of others."""
        if not self.path.is_dir():
            return
        self._writing(_LOCK, self._files.sweep)
        for name in (_JOURNAL, _POLICY, _CAPS, _FIRST_CAPS, _PROFILE, _REPAIR, _SLOT, _UNSELECTED, _FAULTS, _LOCK):
            self._write(name, None)
        try:
            self.path.rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.EROFS):
                raise self._unwritable(".", error) from error

    def problems(self) -> tuple[str, ...]:
        """Return one sentence for each file that could not be read and so counts as absent."""
        return tuple(self._problems.values())

    def unwritable(self) -> str:
        """Return why files cannot be written; empty if the last write of each has succeeded and the directory is writable."""
        if not self._unwritten and self.path.is_dir() and not os.access(self.path, os.W_OK):
            return str(self._unwritable(".", OSError(errno.EROFS, os.strerror(errno.EROFS))))
        return next(iter(self._unwritten.values()), "")

    def _read(self, name: str, parse: Callable[[Field], _Kept]) -> _Kept | None:
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
        self._problems[name] = f"{self.path / name} cannot be used and is ignored: {why}"
        return None

    def _write(self, name: str, content: object) -> None:
        """Write a file; None: delete it."""
        if content is None:
            self._writing(name, lambda: self._files.delete(name))
            return
        text = json.dumps({"version": _VERSION, "content": content}, indent=1, sort_keys=True, default=content_of)
        self._writing(name, lambda: self._files.write(name, text.encode()))

    def _writing(self, name: str, write: Callable[[], None]) -> None:
        """Write. A failure is logged when it begins and when its cause changes, not at each attempt."""
        try:
            write()
        except OSError as error:
            problem = self._unwritable(name, error)
            if self._unwritten.get(name) != str(problem):
                self._unwritten[name] = str(problem)
                _LOG.warning("%s", problem)
            raise problem from error
        if self._unwritten.pop(name, ""):
            _LOG.info("%s can be written again", self.path / name)

    def _unwritable(self, name: str, error: OSError) -> StateDirError:
        return StateDirError(f"{self.path / name} cannot be written: {error.strerror}; no GPU is changed without it")


def _with_fields_of(former: object, new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new content with those fields of the former that it does not have; caps are matched by their devices."""
    if not isinstance(former, dict):
        return dict(new)
    caps = {cap.get("device"): cap for cap in former.get("caps") or () if isinstance(cap, dict)}
    found = {**former, **new}
    if "caps" in new:
        found["caps"] = [_with_fields_of(caps.get(cap.device), content_of(cap)) for cap in new["caps"]]
    return found


def _content(text: bytes) -> Field:
    # Fields of a newer release are no reason to lose the rest of a file: a node may go back to an older one.
    whole = Field(value=json.loads(text), ignored=[]).fields("version", "content")
    whole["version"].integer(at_least=_VERSION, at_most=_VERSION)
    return whole["content"]
