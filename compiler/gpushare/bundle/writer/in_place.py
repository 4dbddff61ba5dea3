"""Replacing a bundle file by file, inside its folder, if the folder itself cannot be exchanged.

Every file is written before the first is replaced, so a full disk changes nothing; after an error the replaced files are
restored. A process killed in the middle leaves whole files of both bundles and the staging folder; from the lock in it, the
next run learns which of the files are ours. The bundle's own lock is replaced last.
"""

import os
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

from gpushare.bundle.writer.folder import Folder, create, make_folder, remove

_STAGE = re.compile(r"\.gpushare-[0-9]+\Z")


def leftovers(root: Path) -> list[Path]:
    """Return the staging folders of killed processes; without the parent folder's lock, one may belong to a running process."""
    try:
        return sorted(entry for entry in root.iterdir() if _STAGE.match(entry.name) and not entry.is_symlink())
    except OSError:
        return []


def _free_name(root: Path) -> Path:
    """Return a staging folder that does not exist yet; process ids are reused, above all in containers."""
    number = os.getpid()
    while os.path.lexists(root / f".gpushare-{number}"):
        number += 1
    return root / f".gpushare-{number}"


def _linked(target: Path, aside: Path) -> bool:
    try:
        os.link(target, aside, follow_symlinks=False)
    except OSError:
        return False
    return True


class Replacement:
    """Files to put into `root`, in this order, and files to remove; can be undone until the last file is in place."""

    def __init__(self, *, root: Path, files: Mapping[str, bytes], gone: tuple[str, ...]) -> None:
        self.root = root
        self.files = files
        self.gone = gone
        self._undo: list[Callable[[], object]] = []

    def replace(self) -> None:
        """Replace the files, or leave the folder unchanged."""
        made = not self.root.is_dir()
        if made:
            self.root.mkdir()
        stage = _free_name(self.root)
        try:
            self._stage(stage / "new")
            for path in self.gone:
                self._set_aside(path, stage)
            for path in self.files:
                self._put(path, stage)
        except BaseException:
            self._roll_back(stage)
            if made:
                self.root.rmdir()
            raise
        with suppress(OSError):  # the new bundle is in place; the next run removes the stage
            remove(stage)
        self._remove_emptied()

    def _stage(self, new: Path) -> None:
        folder = Folder(root=self.root)
        new.parent.mkdir()
        new.mkdir()
        for path, content in self.files.items():
            make_folder(new, str(PurePosixPath(path).parent), {})
            create(new / path, content, folder.status(path))

    def _put(self, path: str, stage: Path) -> None:
        target = self.root / path
        for made in make_folder(self.root, str(PurePosixPath(path).parent), {}):
            self._undo.append(made.rmdir)
        if os.path.lexists(target):
            self._set_aside(path, stage, link=True)
        else:
            self._undo.append(partial(target.unlink, missing_ok=True))
        (stage / "new" / path).replace(target)

    def _set_aside(self, path: str, stage: Path, *, link: bool = False) -> None:
        """Keep the old file until every file is in place. `link`: if hard links are supported, its name is never missing."""
        target, aside = self.root / path, stage / "old" / path
        make_folder(stage, f"old/{PurePosixPath(path).parent}", {})
        if not (link and _linked(target, aside)):
            target.rename(aside)
        self._undo.append(partial(aside.replace, target))

    def _roll_back(self, stage: Path) -> None:
        for step in reversed(self._undo):
            with suppress(OSError):
                step()
        with suppress(OSError):
            remove(stage)

    def _remove_emptied(self) -> None:
        for path in self.gone:
            for parent in PurePosixPath(path).parents:
                with suppress(OSError):  # it has other files, or no longer exists
                    if str(parent) != ".":
                        (self.root / parent).rmdir()
