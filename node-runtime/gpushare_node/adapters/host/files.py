"""Files: a directory whose files are written atomically and durably, and read without following links. Owns no contents.

A write creates a file beside the old one, fsyncs and renames it, and fsyncs the directory: after a crash either the old or the
new file exists.
"""

import errno
import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_MAX_BYTES = 4 << 20
"""More than any file here ever contains; a larger file is not ours."""

_HALF_WRITTEN = ".new"


class Files:
    """One directory, mode 0700, its files 0600. Every method raises OSError."""

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
