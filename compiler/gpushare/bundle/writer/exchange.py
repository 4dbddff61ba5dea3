"""Replacing a whole folder in one step: the new tree is built beside it, then the two names are exchanged.

At every moment the folder is the old bundle or the new one. Files that gpushare did not write are hard-linked, so they are in
both trees. If an exchange is not possible, raises OSError or UnsuitableError and leaves the folder unchanged; the caller then
uses in_place.py.
"""

import errno
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

from gpushare.bundle.writer.folder import Folder, OutputError, create, imitate, make_folder, remove, walk

MAX_FOREIGN = 1000
"""Entries that are not ours. In a folder with more of them (a whole repository) single files are replaced instead."""

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


class UnsuitableError(Exception):
    """The folder contains something that cannot be linked: another file system, or too many entries that are not ours."""


def work_folder(root: Path) -> Path:
    """Return where this process builds the new tree: beside `root`, because a rename works within one file system only."""
    return root.parent / f".{root.name}.gpushare-{os.getpid()}"


def leftovers(root: Path) -> list[Path]:
    """Return the work folders of killed processes; without the parent folder's lock, one may belong to a running process."""
    name = re.compile(rf"\.{re.escape(root.name)}\.gpushare-[0-9]+\Z")
    try:
        return sorted(entry for entry in root.parent.iterdir() if name.match(entry.name) and not entry.is_symlink())
    except OSError:
        return []


class Tree:
    """A new tree being built. `contents` is the whole bundle, `changed` the paths that differ, `gone` the paths to remove."""

    def __init__(
        self, *, root: Path, contents: Mapping[str, bytes], changed: frozenset[str], gone: frozenset[str], ours: frozenset[str]
    ) -> None:
        self.root = root
        self.contents = contents
        self.changed = changed
        self.gone = gone
        self.ours = ours
        self._old: dict[str, os.stat_result] = {}

    def replace(self) -> None:
        """Build the new tree and put it in the place of the old one."""
        work = work_folder(self.root)
        new, old = work / "new", work / "old"
        work.mkdir(0o700)
        try:
            new.mkdir()
            self._fill(new)
            if self._old:
                _exchange(new, self.root)
            else:
                new.rename(self.root)  # onto nothing or an empty folder
        except BaseException:
            remove(work)
            raise
        with suppress(OSError):  # the new bundle is in place; the next run removes what is left of the old one
            if self._old:
                new.rename(old)
            retire(work, self.root, self.ours)

    def _fill(self, new: Path) -> None:
        if self.root.is_dir():
            imitate(new, self.root.stat())
            self._carry(new)
        changed = {path: content for path, content in self.contents.items() if path in self.changed}
        for folder in dict.fromkeys(path.rpartition("/")[0] or "." for path in changed):
            make_folder(new, folder, self._old)
        for path, content in changed.items():
            create(new / path, content, self._old.get(path))

    def _carry(self, new: Path) -> None:
        """Link every unchanged file into the new tree, ours and foreign ones, and make the folders that are not ours."""
        device = self.root.stat().st_dev
        our_folders = {str(parent) for path in (*self.ours, *self.contents) for parent in PurePosixPath(path).parents}
        foreign = 0
        for path, status in walk(self.root):
            self._old[path] = status
            if path in self.changed or path in self.gone or path in our_folders:
                continue
            foreign += path not in self.contents
            if foreign > MAX_FOREIGN or status.st_dev != device:
                raise UnsuitableError(path)
            if stat.S_ISDIR(status.st_mode):
                make_folder(new, path, self._old)
            else:
                make_folder(new, str(PurePosixPath(path).parent), self._old)
                os.link(self.root / path, new / path, follow_symlinks=False)


def _exchange(one: Path, other: Path) -> None:
    """Swap two names of one file system in one step (renameat2, Linux 3.15 and glibc 2.28 on)."""
    import ctypes  # noqa: PLC0415 - takes longer to import than the rest of this module, and a first bundle does not need it

    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    if libc.renameat2(_AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other), _RENAME_EXCHANGE):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(one))


def retire(work: Path, root: Path, ours: frozenset[str]) -> None:
    """Remove a work folder, and move files that appeared in the old tree while the new one was built to the new one.

    The old tree's own files are removed: `ours`, and every file that the new tree links to. Raises OutputError if a file
    appeared that the new tree has as well: it stays where it is.
    """
    remove(work / "new")
    old, inside = work / "old", Folder(root=root)
    stuck = []
    for path, status in list(walk(old)) if old.is_dir() and not old.is_symlink() else []:
        if stat.S_ISDIR(status.st_mode):
            continue
        there = inside.status(path)
        if path in ours or (there and (there.st_dev, there.st_ino) == (status.st_dev, status.st_ino)):
            (old / path).unlink()
        elif there or inside.obstacle(path):
            stuck.append(path)
        else:
            make_folder(root, str(PurePosixPath(path).parent), {})
            (old / path).rename(root / path)
    if stuck:
        hint = f"its newer version is {old / stuck[0]}: move or delete it"
        raise OutputError(f"{stuck[0]} changed while {root} was replaced", hint)
    remove(work)
