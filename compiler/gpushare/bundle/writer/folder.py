"""What a bundle's folder contains, and the functions that change a folder. Never follows a link below the folder itself.

Knows paths, bytes and digests; knows neither locks nor the order in which a bundle is replaced.
"""

import errno
import os
import stat
from collections.abc import Iterator, Mapping
from enum import StrEnum
from itertools import accumulate
from pathlib import Path, PurePosixPath

from gpushare.bundle.artifact import hexdigest
from gpushare.core.record import Record


class OutputError(Exception):
    """The bundle could not be written. `message` is the reason, `hint` what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class ChangeKind(StrEnum):
    """How a file differs from the bundle.

    EDITED: no longer part of the bundle, but changed since gpushare wrote it, so it stays. FOREIGN: not written by gpushare,
    and at a path that the bundle needs.
    """

    MISSING = "missing"
    DIFFERENT = "different"
    STALE = "stale"
    EDITED = "edited"
    FOREIGN = "foreign"


class FileChange(Record):
    """One file that must change, or that is kept, by its path in the bundle."""

    path: str
    kind: ChangeKind


class Folder:
    """The files below `root`, read without following links: a path through a link does not exist."""

    def __init__(self, *, root: Path) -> None:
        self.root = root
        self._folders: dict[str, bool] = {}

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of the path itself; None if it does not exist or its parent is not a real folder."""
        parent = path.rpartition("/")[0] or "."  # not by pathlib, which is slower: a first compile needs about three hundred
        return _status(self.root / path) if self._is_folder(parent) else None

    def _is_folder(self, path: str) -> bool:
        known = self._folders.get(path)
        if known is None:
            found = _status(self.root) if path == "." else self.status(path)
            known = self._folders[path] = found is not None and stat.S_ISDIR(found.st_mode)
        return known

    def obstacle(self, path: str) -> str | None:
        """Return the first path above this one that exists and is not a real folder."""
        above = accumulate(path.split("/")[:-1], "{}/{}".format)
        return next((parent for parent in above if not self._is_folder(parent) and self.status(parent)), None)

    def has(self, path: str, content: bytes) -> bool:
        """Whether the path is a regular file with exactly this content."""
        found = self.status(path)
        if found is None or not stat.S_ISREG(found.st_mode) or found.st_size != len(content):
            return False
        return self._read(path) == content

    def has_digest(self, path: str, digests: tuple[str, ...]) -> bool:
        """Whether the path is a regular file with one of these digests."""
        found = self.status(path)
        if found is None or not stat.S_ISREG(found.st_mode):
            return False
        return "sha256:" + hexdigest(self._read(path)) in digests

    def _read(self, path: str) -> bytes:
        with (self.root / path).open("rb") as file:
            return file.read()


def _status(path: Path) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
            return None
        raise


def compare(folder: Folder, contents: Mapping[str, bytes], ours: Mapping[str, tuple[str, ...]]) -> tuple[FileChange, ...]:
    """Return how the folder differs from `contents` (path → bytes). `ours`: digests of what gpushare wrote there, by path."""
    return (*_wanted(folder, contents, ours), *_unwanted(folder, contents, ours))


def _wanted(folder: Folder, contents: Mapping[str, bytes], ours: Mapping[str, tuple[str, ...]]) -> Iterator[FileChange]:
    obstacles = set()
    for path, content in contents.items():
        found = folder.status(path)
        if found is None:
            obstacle = folder.obstacle(path)
            if obstacle is None:
                yield FileChange(path=path, kind=ChangeKind.MISSING)
            elif obstacle not in obstacles:
                obstacles.add(obstacle)
                yield FileChange(path=obstacle, kind=ChangeKind.FOREIGN)
        elif not folder.has(path, content):
            replaceable = path in ours and not stat.S_ISDIR(found.st_mode)
            yield FileChange(path=path, kind=ChangeKind.DIFFERENT if replaceable else ChangeKind.FOREIGN)


def _unwanted(folder: Folder, contents: Mapping[str, bytes], ours: Mapping[str, tuple[str, ...]]) -> Iterator[FileChange]:
    for path, digests in ours.items():
        if path not in contents and folder.status(path) is not None:
            stale = folder.has_digest(path, digests)
            yield FileChange(path=path, kind=ChangeKind.STALE if stale else ChangeKind.EDITED)


def walk(root: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield everything below the folder as (path, status), without following links; a folder before its entries."""
    pending = [_entries(root, "")]
    while pending:
        path, status = next(pending[-1], ("", None))
        if status is None:
            pending.pop()
            continue
        yield path, status
        if stat.S_ISDIR(status.st_mode):
            pending.append(_entries(root, path))


def _entries(root: Path, below: str) -> Iterator[tuple[str, os.stat_result]]:
    with os.scandir(root / below) as entries:
        found = sorted(entries, key=lambda entry: entry.name)
    for entry in found:
        yield f"{below}/{entry.name}" if below else entry.name, entry.stat(follow_symlinks=False)


def remove(root: Path) -> None:
    """Remove a folder and its contents; links are removed, not followed. A folder that does not exist is not an error."""
    if root.is_symlink():
        root.unlink()
    if not root.is_dir():
        return
    for path, status in reversed(list(walk(root))):
        if stat.S_ISDIR(status.st_mode):
            (root / path).rmdir()
        else:
            (root / path).unlink()
    root.rmdir()


def make_folder(root: Path, path: str, like: Mapping[str, os.stat_result]) -> list[Path]:
    """Make the missing folders of the path below `root` and return them; those in `like` get the old mode and owner."""
    made = []
    for folder in (*reversed(PurePosixPath(path).parents), PurePosixPath(path)):
        target = root / folder
        if not target.is_dir():
            target.mkdir()
            made.append(target)
            imitate(target, like.get(str(folder)))
    return made


def create(target: Path, content: bytes, like: os.stat_result | None) -> None:
    """Write a new file with the mode and owner of `like`, the file that it will replace."""
    handle = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        view = memoryview(content)
        while view:
            view = view[os.write(handle, view) :]
    finally:
        os.close(handle)
    imitate(target, like if like and stat.S_ISREG(like.st_mode) else None)


def imitate(target: Path, like: os.stat_result | None) -> None:
    """Give the file or folder the owner and the mode of another."""
    if like is None:
        return
    found = os.lstat(target)
    if (found.st_uid, found.st_gid) != (like.st_uid, like.st_gid):
        os.chown(target, like.st_uid, like.st_gid)
    if stat.S_IMODE(found.st_mode) != stat.S_IMODE(like.st_mode):
        target.chmod(stat.S_IMODE(like.st_mode))


def is_full(error: OSError) -> bool:
    """Whether the disk or the quota is full: the other way of replacing would fail too."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
