"""Writing the bundle: the only part of gpushare that writes files.

Decides which files of a bundle's folder are ours (the lock lists them), which must change and which stay as they are.
Replaces either the whole bundle or nothing, and never changes anything outside the folder or anything that gpushare did not
write. Failures are OutputError.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from gpushare.bundle import lock
from gpushare.bundle.artifact import Artifact, is_bundle_path
from gpushare.bundle.lock import Lock
from gpushare.bundle.writer.folder import ChangeKind, FileChange, Folder, OutputError, compare, is_full
from gpushare.core.diagnostics import Finding

__all__ = ["ChangeKind", "FileChange", "OutputError", "changes", "read_lock", "write"]

WAIT_SECONDS = 30.0
"""How long to wait for another compile that writes into the same folder."""


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
    return not (directory / lock.FILE).exists() and (directory / "nodes" / "pools.yaml").is_file()


_NEEDED = "it says what the bundle consists of"


def changes(artifacts: Iterable[Artifact], directory: Path) -> tuple[FileChange, ...]:
    """Return what `write` would change, file by file; empty if the bundle is current. A broken lock lists no files."""
    contents = _contents(artifacts)
    with _failing(directory):
        return compare(Folder(root=_resolved(directory)), contents, _ours(_lock_of(directory)))


def write(artifacts: Iterable[Artifact], directory: Path, previous_lock: Lock) -> tuple[FileChange, ...]:
    """Make the folder contain exactly this bundle, beside files that are not ours. Return what changed and what was kept.

    `previous_lock` is the lock that the bundle was compiled with. Raises OutputError; the folder is then unchanged.
    """
    root, contents = _resolved(directory), _contents(artifacts)
    if root.exists() and not root.is_dir():
        raise OutputError(f"{directory} is a file, not a folder", "name another folder")
    with _failing(directory):
        if not compare(Folder(root=root), contents, _ours(previous_lock)) and not _left_behind(root):
            return ()
        root.parent.mkdir(parents=True, exist_ok=True)
        with _alone(root.parent):
            return _replace(root, contents, previous_lock)


@contextmanager
def _failing(directory: Path) -> Iterator[None]:
    """Turn errors of the file system into OutputError, in the user's words."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        hint = "free some space" if is_full(error) else "check the folder's owner, mode and file system"
        raise OutputError(f"{directory} cannot be written: {reason}", f"nothing in it has changed; {hint}") from error


def _resolved(directory: Path) -> Path:
    """Return the folder that a link points to, because replacing the bundle must not replace the link."""
    return Path(os.path.realpath(directory))


def _contents(artifacts: Iterable[Artifact]) -> dict[str, bytes]:
    """Return bytes by path, the lock last. Raises ValueError, a bug, for a path that leads out of the bundle."""
    ordered = sorted(artifacts, key=lambda artifact: artifact.path == lock.FILE)
    for artifact in ordered:
        if not is_bundle_path(artifact.path):
            raise ValueError(f"not a path in a bundle: {artifact.path!r}")
    return {artifact.path: artifact.text.encode() for artifact in ordered}


def _ours(*locks: Lock) -> dict[str, tuple[str, ...]]:
    """Return the digests of the files that gpushare wrote, by path; the lock itself has none."""
    ours: dict[str, tuple[str, ...]] = {lock.FILE: ()}
    for known in locks:
        for path, digest in known.files.items():
            ours[path] = (*ours.get(path, ()), digest)
    return ours


def _left_behind(root: Path) -> bool:
    from gpushare.bundle.writer import exchange, in_place  # noqa: PLC0415 - only a run that changes something needs them

    return bool(exchange.leftovers(root) or in_place.leftovers(root))


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the folder against other compiles. File systems without such locks (some network ones) are used without one."""
    import fcntl  # noqa: PLC0415 - only a run that changes something needs it
    import time  # noqa: PLC0415 - as above

    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    deadline = time.monotonic() + WAIT_SECONDS
    try:
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > deadline:
                    message = f"another compile has been writing into {folder} for {WAIT_SECONDS:.0f} s"
                    raise OutputError(message, "run it again later") from None
                time.sleep(0.02)
                continue
            except OSError:
                pass
            break
        yield
    finally:
        with suppress(OSError):  # an error of closing does not change what was written
            os.close(handle)


def _replace(root: Path, contents: Mapping[str, bytes], previous: Lock) -> tuple[FileChange, ...]:
    from gpushare.bundle.writer import exchange, folder, in_place  # noqa: PLC0415 - see _left_behind

    for work in exchange.leftovers(root):
        exchange.retire(work, root, frozenset(_ours(_lock_of(work / "old"))))
    unfinished = in_place.leftovers(root)
    now = _lock_of(root)
    ours = _ours(now, *(_lock_of(stage / "new") for stage in unfinished))
    found = compare(Folder(root=root), contents, ours)
    if found:
        _refuse_foreign(root, found)
        if now != previous:
            raise OutputError(f"{root} was changed by another compile meanwhile", "run it again")
        _apply(root, contents, found, frozenset(ours), finish_in_place=bool(unfinished))
    for stage in unfinished:
        folder.remove(stage)
    return found


def _lock_of(bundle: Path) -> Lock:
    """Return the lock in a folder, an empty one if it is not valid: a file that it does not list is not ours."""
    known = read_lock(bundle)
    return known if isinstance(known, Lock) else lock.EMPTY


def _refuse_foreign(root: Path, found: tuple[FileChange, ...]) -> None:
    foreign = [change.path for change in found if change.kind is ChangeKind.FOREIGN]
    if foreign:
        more = f" and {len(foreign) - 1} more" if len(foreign) > 1 else ""
        message = f"{root / foreign[0]}{more} was not written by gpushare and is in the way of the bundle"
        raise OutputError(message, "move it away, or compile into another folder")


def _apply(
    root: Path, contents: Mapping[str, bytes], found: tuple[FileChange, ...], ours: frozenset[str], *, finish_in_place: bool
) -> None:
    """Exchange the folder if that is possible and safe, else replace its files one by one."""
    from gpushare.bundle.writer import exchange, in_place  # noqa: PLC0415 - see _left_behind

    changed = [change.path for change in found if change.kind in (ChangeKind.MISSING, ChangeKind.DIFFERENT)]
    gone = tuple(change.path for change in found if change.kind is ChangeKind.STALE)
    if not finish_in_place and not _stands_in(root):
        tree = exchange.Tree(root=root, contents=contents, changed=frozenset(changed), gone=frozenset(gone), ours=ours)
        try:
            tree.replace()
            return
        except (OSError, exchange.UnsuitableError) as error:
            if isinstance(error, OSError) and is_full(error):
                raise
    in_place.Replacement(root=root, files={path: contents[path] for path in changed}, gone=gone).replace()


def _stands_in(root: Path) -> bool:
    """Whether the working directory is the folder or below it: a shell there would be in the old tree after an exchange."""
    here = None
    with suppress(OSError):
        here = Path.cwd()
    return here is not None and here.is_relative_to(root)
