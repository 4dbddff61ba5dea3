"""The runtime's folder on the host, `/var/lib/gpushare`: what must outlive a pod.

Every write is atomic and durable: a file beside it, fsync, rename, fsync of the folder. What cannot be read is as good as
absent, and said; hardware decides, the folder only remembers.
"""

import errno
import json
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TypeVar

from gpushare_node.adapters.host.files import Files
from gpushare_node.adapters.host.state_files import (
    CapRecord,
    FormerGpu,
    InstanceSpec,
    Journal,
    KeptContainer,
    Notice,
    Published,
    RepairMark,
    read_caps,
    read_first_caps,
    read_journal,
    read_published,
    read_repair_mark,
)
from gpushare_node.core.strict_document import Field, PolicyError
from gpushare_node.core.structs import content_of

__all__ = [
    "DEFAULT",
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
]

DEFAULT = "/var/lib/gpushare"

_LOCK, _JOURNAL, _POLICY, _CAPS, _FIRST_CAPS, _PROFILE, _REPAIR, _TURN = (
    "lock", "journal.json", "policy.json", "caps.json", "first-caps.json", "profile.json", "repair.json",
    "turn.json",
)

_VERSION = 1
"""Of what is written here. What has another version was written by another release and is as good as absent."""

_Kept = TypeVar("_Kept")


class StateDirError(Exception):
    """The folder cannot be written, or another runtime holds its lock. The text says what to do."""


class StateDirLockedError(StateDirError):
    """Another runtime holds the lock: the one case in which this program ends with exit code 75."""


class StateDir:
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
            raise StateDirLockedError(f"another gpushare-node is running: it holds {self.path / _LOCK}; wait for it") from error
        except OSError as error:
            raise self._unwritable(_LOCK, error) from error
        try:
            self._writing(_LOCK, self._files.sweep)
            yield
        finally:
            held.__exit__(None, None, None)

    def journal(self) -> Journal | None:
        """What the last run that began to change hardware wrote down."""
        return self._read(_JOURNAL, read_journal)

    def write_journal(self, journal: Journal) -> None:
        """Write it down, durably."""
        self._write(_JOURNAL, journal)

    def clear_journal(self) -> None:
        """Nothing is under way any more."""
        self._writing(_JOURNAL, lambda: self._files.delete(_JOURNAL))

    def policy(self) -> str | None:
        """The text of the last policy in force."""
        return self._read(_POLICY, Field.text)

    def keep_policy(self, text: str) -> None:
        """Keep the policy that is in force now."""
        self._write(_POLICY, text)

    def caps(self) -> Mapping[str, KeptContainer]:
        """The caps under which containers were started, by the container runtime's id; empty if nothing is known."""
        return self._read(_CAPS, read_caps) or {}

    def keep_caps(self, caps: Mapping[str, KeptContainer]) -> None:
        """Keep these, and no others."""
        self._write(_CAPS, dict(caps))

    def first_caps(self) -> Mapping[str, int]:
        """Since when each resource has had a cap here, in seconds since 1970; empty if nothing is known."""
        return self._read(_FIRST_CAPS, read_first_caps) or {}

    def keep_first_caps(self, first: Mapping[str, int]) -> None:
        """Keep these, and no others."""
        self._write(_FIRST_CAPS, dict(first))

    def begin_caps(self, resources: Collection[str], now: float) -> None:
        """These have a cap from now on, unless they have had one already, or a release that did not write it down held some."""
        known = self.first_caps()
        has_held = any(cap.cap_bytes is not None for kept in self.caps().values() for cap in kept.caps)
        found = {**dict.fromkeys(resources, 0 if has_held and not known else int(now)), **known}
        if found != known:
            self.keep_first_caps(found)

    def profile(self) -> Published | None:
        """What was published last."""
        return self._read(_PROFILE, read_published)

    def keep_profile(self, key: str, devices: Collection[str]) -> None:
        """Keep which profile, `…-a` or `…-b`, is published now, and for which devices."""
        self._write(_PROFILE, {"key": key, "devices": sorted(devices)})

    def repaired(self) -> RepairMark | None:
        """The last repair that was asked for."""
        return self._read(_REPAIR, read_repair_mark)

    def mark_repair(self, mark: RepairMark) -> None:
        """A repair is asked for next. To be written before it is, or it would be asked for again and again."""
        self._write(_REPAIR, mark)

    def turn(self) -> str | None:
        """The Lease that is the node's turn, or was about to be."""
        return self._read(_TURN, Field.text)

    def keep_turn(self, name: str | None) -> None:
        """Keep its name; None: there is none any more. To be written before the Lease is."""
        if name is None:
            self._writing(_TURN, lambda: self._files.delete(_TURN))
        else:
            self._write(_TURN, name)

    def remove(self) -> None:
        """Delete all of it. The folder itself stays where it is a mount point, or where others put files into it."""
        if not self.path.is_dir():
            return
        self._writing(_LOCK, self._files.sweep)
        for name in (_JOURNAL, _POLICY, _CAPS, _FIRST_CAPS, _PROFILE, _REPAIR, _TURN, _LOCK):
            self._writing(name, partial(self._files.delete, name))
        try:
            self.path.rmdir()
        except OSError as error:
            if error.errno not in (errno.EBUSY, errno.ENOTEMPTY, errno.EROFS):
                raise self._unwritable(".", error) from error

    def problems(self) -> tuple[str, ...]:
        """One sentence for each file that could not be read and so counts as absent."""
        return tuple(self._problems.values())

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
        text = json.dumps({"version": _VERSION, "content": content}, indent=1, sort_keys=True, default=content_of)
        self._writing(name, lambda: self._files.write(name, text.encode()))

    def _writing(self, name: str, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            raise self._unwritable(name, error) from error

    def _unwritable(self, name: str, error: OSError) -> StateDirError:
        return StateDirError(f"{self.path / name} cannot be written: {error.strerror}; no GPU is changed without it")


def _content(text: bytes) -> Field:
    whole = Field(value=json.loads(text)).fields("version", "content")
    whole["version"].whole(at_least=_VERSION, at_most=_VERSION)
    return whole["content"]
