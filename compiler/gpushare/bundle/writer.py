"""Writing the bundle: the only part of gpushare that writes files. Failures are OutputError.

The lock lists which files of a folder are ours; no other file, and nothing outside the folder, is changed. A file is written
under another name in its folder and then renamed, so each is whole at every moment; unchanged ones are not touched. The new
lock comes last: an interrupted run leaves the former one, which lists the files that the run adds as well, so the next run
finishes, whatever its contents.
"""

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from itertools import accumulate, chain
from pathlib import Path

from gpushare.bundle import lock
from gpushare.bundle.artifact import Artifact, hexdigest, is_bundle_path
from gpushare.bundle.lock import Lock
from gpushare.core.diagnostics import Finding, HintedError
from gpushare_node.contract.struct import Struct, replace

_TEMPORARY = r"\.gpushare-[0-9a-f]{16}-[0-9]+"


class OutputError(HintedError):
    """The bundle could not be written."""


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


class FileChange(Struct):
    """One file that must change, or that is kept, by its path in the bundle."""

    path: str
    kind: ChangeKind


def read_lock(directory: Path) -> Lock | Finding:
    """Return the lock of the bundle in a folder: an empty lock if the file does not exist, a finding if it is not valid."""
    path = directory / lock.FILE
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:  # opening a pipe would otherwise block
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OutputError(f"{path} is not a file", _NEEDED)
            data = file.read(lock.MAX_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return lock.EMPTY
    except OSError as error:
        raise OutputError(f"{path} cannot be read: {error.strerror}", _NEEDED) from error
    return lock.read(data, str(path))


def is_lost(directory: Path) -> bool:
    """Whether the folder contains a bundle without a lock."""
    return not (directory / lock.FILE).exists() and (directory / "chart" / "values.yaml").is_file()


_NEEDED = "it says what the bundle consists of"


def changes(artifacts: Iterable[Artifact], directory: Path) -> tuple[FileChange, ...]:
    """Return what `write` would change, file by file; empty if the bundle is current. A broken lock lists no files."""
    contents, known = _contents(artifacts), _lock_of(directory)
    with _failing(directory):
        return _compare(_Folder(directory, {**contents, **known.files}), contents, known)


def write(artifacts: Iterable[Artifact], directory: Path, previous_lock: Lock) -> tuple[FileChange, ...]:
    """Make the folder contain exactly this bundle, beside files that are not ours. Return what changed and what was kept.

    `previous_lock` is the lock that the bundle was compiled with. Raises OutputError; after an error of the file system the
    folder may have files of both bundles, each of them whole, and `changes` returns what is not done.
    """
    contents, known = _contents(artifacts), _lock_of(directory)
    with _failing(directory):
        folder = _Folder(directory, {**contents, **known.files})
        if folder.root.exists() and not folder.root.is_dir():
            raise OutputError(f"{directory} is a file, not a folder", "name another folder")
        found = _compare(folder, contents, known)
        foreign = [change.path for change in found if change.kind is ChangeKind.FOREIGN]
        if foreign:
            more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
            message = f"{folder.root / foreign[0]}{more} was not written by gpushare and is in the way of the bundle"
            raise OutputError(message, "move it away, or compile into another folder")
        if found and known != previous_lock:
            raise OutputError(f"{directory} was changed by another compile meanwhile", "run it again")
        folder.remove_temporary()
        if found:
            _replace(folder, contents, found, known)
    return found


_HINTS = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.ENOENT: "let no other compile write into it at the same time",
}


@contextmanager
def _failing(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into OutputError, in the user's words."""
    try:
        yield
    except OSError as error:
        what = _HINTS.get(error.errno or 0, "check the folder's owner, mode and file system")
        hint = f"{what}, then run it again: until then the folder may have files of both bundles"
        raise OutputError(f"{directory} cannot be written: {error.strerror or error}", hint) from error


def _contents(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    """Return bytes by path, the lock last. Raises ValueError, a bug, for a path that leads out of the bundle."""
    ordered = sorted(artifacts, key=lambda artifact: artifact.path == lock.FILE)
    for artifact in ordered:
        if not is_bundle_path(artifact.path):
            raise ValueError(f"not a path in a bundle: {artifact.path!r}")
    return {artifact.path: artifact.text.encode() for artifact in ordered}


def _lock_of(bundle: Path) -> Lock:
    """Return the lock in a folder, an empty one if it is not valid: a file that it does not list is not ours."""
    known = read_lock(bundle)
    return known if isinstance(known, Lock) else lock.EMPTY


class _Folder:
    """A folder with what is above some paths in it, read without following links: a path through a link does not exist.

    `root` is where the folder is, if it is a link. `inside` are the real folders above the paths, itself included, as `.`;
    `obstacles` is what there is in the place of others.
    """

    def __init__(self, directory: Path, paths: Iterable[str]) -> None:
        self.root = Path(os.path.realpath(directory))
        self.inside = {"."} if self.root.is_dir() else set[str]()
        self.obstacles = set[str]()
        for path in sorted(set(chain.from_iterable(map(_above, paths)))):
            found = self.status(path)
            if found:
                (self.inside if stat.S_ISDIR(found.st_mode) else self.obstacles).add(path)

    def status(self, path: str) -> os.stat_result | None:
        """Return the status of the path itself; None if it does not exist or its parent is not a real folder."""
        if (path.rpartition("/")[0] or ".") not in self.inside:
            return None
        try:
            return os.lstat(self.root / path)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENAMETOOLONG):
                return None
            raise

    def content(self, path: str, size: int | None = None) -> bytes | None:
        """Return the content of the path; None if it is not a regular file, or not of this size."""
        found = self.status(path)
        if found is None or not stat.S_ISREG(found.st_mode) or size not in (None, found.st_size):
            return None
        return (self.root / path).read_bytes()

    def remove_temporary(self) -> None:
        """Remove what killed runs left."""
        for path in self.inside:
            for entry in (self.root / path).iterdir():
                if re.fullmatch(_TEMPORARY, entry.name):
                    entry.unlink(missing_ok=True)


def _above(path: str) -> list[str]:
    """Return the folders above a path, the deepest last; without pathlib, which is slower."""
    return list(accumulate(path.split("/")[:-1], "{}/{}".format))


def _compare(folder: _Folder, contents: Mapping[str, bytes], known: Lock) -> tuple[FileChange, ...]:
    """Return how the folder differs from `contents`, by the lock that is in it."""
    found: dict[str, ChangeKind] = {}
    for path, content in contents.items():
        status = folder.status(path)
        if status is None:
            obstacle = next((above for above in _above(path) if above in folder.obstacles), None)
            found[obstacle or path] = ChangeKind.FOREIGN if obstacle else ChangeKind.MISSING
        elif folder.content(path, len(content)) != content:
            is_ours = (path == lock.FILE or path in known.files) and not stat.S_ISDIR(status.st_mode)
            found[path] = ChangeKind.DIFFERENT if is_ours else ChangeKind.FOREIGN
    for path, digest in known.files.items():
        if path not in contents and folder.status(path) is not None:
            content_now = folder.content(path)
            is_as_written = content_now is not None and f"sha256:{hexdigest(content_now)}" == digest
            found.setdefault(path, ChangeKind.STALE if is_as_written else ChangeKind.EDITED)
    return tuple(FileChange(path=path, kind=kind) for path, kind in found.items())


def _replace(folder: _Folder, contents: Mapping[str, bytes], found: tuple[FileChange, ...], known: Lock) -> None:
    """Make the changes so that wherever it ends, the lock in the folder lists every file of ours."""
    kinds = (ChangeKind.MISSING, ChangeKind.DIFFERENT)
    files = {change.path: contents[change.path] for change in found if change.kind in kinds}
    last = {path: files.pop(path) for path in (lock.FILE,) if path in files}
    added = {path: f"sha256:{hexdigest(content)}" for path, content in files.items() if path not in known.files}
    if added:
        _put(folder.root, {lock.FILE: lock.text(replace(known, files={**known.files, **added})).encode()})
    _put(folder.root, files)
    for change in found:
        if change.kind is ChangeKind.STALE:
            (folder.root / change.path).unlink(missing_ok=True)
    for path in known.files.keys() - contents.keys():  # an interrupted run may have left empty folders, too
        for above in reversed(_above(path)):
            if above in folder.inside:
                with suppress(OSError):  # it has other files
                    (folder.root / above).rmdir()
    _put(folder.root, last)


def _put(root: Path, files: Mapping[str, bytes]) -> None:
    """Write the files under other names, then rename them: an error of writing changes none of them."""
    run, written = os.urandom(8).hex(), dict[Path, Path]()
    try:
        for path, content in files.items():
            target = root / path
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.with_name(f".gpushare-{run}-{len(written)}")
            written[temporary] = target
            with temporary.open("xb") as file:
                file.write(content)
        for temporary, target in written.items():
            temporary.replace(target)
    except BaseException:
        for temporary in written:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
        raise
