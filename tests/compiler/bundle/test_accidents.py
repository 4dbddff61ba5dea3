"""A write that is killed, fails or meets another: the folder holds the old bundle or the new one, and foreign files stay."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpushare.bundle import lock, writer
from gpushare.bundle.writer import OutputError
from gpushare.core.diagnostics import Finding
from tests.compiler.bundle.bundles import FOREIGN, NEW, OLD, bundle, found, lay, memory, texts
from tests.support import scale

BEFORE, AFTER = texts(OLD) | FOREIGN, texts(NEW) | FOREIGN

STEPS = ("chmod", "close", "link", "lstat", "mkdir", "open", "rename", "replace", "rmdir", "scandir", "unlink", "write")
GROWING = ("link", "mkdir", "open", "write")
EVENTS = {"open", "os.mkdir", "os.rename", "os.link", "os.remove", "os.rmdir", "os.chmod", "os.chown", "os.scandir"}
MAX_STEPS = 2000


def fresh(parent: Path, number: int) -> Path:
    """A folder with the old bundle and foreign files, alone in its parent."""
    folder = parent / str(number) / "bundle"
    lay(folder, BEFORE)
    return folder


def assert_finishes(folder: Path) -> None:
    """The next run ends with exactly the new bundle and nothing beside it."""
    known = writer.read_lock(folder)
    assert not isinstance(known, Finding)
    writer.write(bundle(NEW), folder, known)
    assert found(folder.parent) == {f"bundle/{path}": text for path, text in AFTER.items()}
    assert [entry.name for entry in folder.parent.iterdir()] == ["bundle"]


def in_child(job: Callable[[], object]) -> int:
    """Run a job in a forked process; its exit status or minus the signal that ended it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child touches none of theirs
        child = os.fork()
    if child == 0:
        try:
            job()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(number: int, folder: Path) -> Callable[[], None]:
    """A write that is killed before its `number`-th step that the interpreter reports to audit hooks."""

    def job() -> None:
        left = number

        def hook(event: str, _: tuple[Any, ...]) -> None:
            nonlocal left
            if event in EVENTS:
                left -= 1
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        writer.write(bundle(NEW), folder, memory(OLD))

    return job


def test_a_kill_at_any_step_leaves_whole_files_and_the_next_run_finishes(tmp_path: Path, way: str) -> None:
    writer.write(bundle(NEW), tmp_path / "warm", lock.EMPTY)  # so that the children import nothing
    seen = set()
    for number in scale.some(range(1, MAX_STEPS), 6):
        folder = fresh(tmp_path, number)
        status = in_child(killed_at(number, folder))
        now = {path: text for path, text in found(folder).items() if not path.startswith(".gpushare-")}
        assert {path: now[path] for path in FOREIGN} == FOREIGN, number
        if way == "exchange":
            assert now in (BEFORE, AFTER), number
        assert all(text in (BEFORE.get(path), AFTER.get(path)) for path, text in now.items()), number
        assert now.keys() >= BEFORE.keys() & AFTER.keys(), number
        seen.add(now == AFTER)
        assert_finishes(folder)
        if status == 0:
            break
        assert status == -signal.SIGKILL
    assert status == 0
    assert seen == {True, False}
    assert number > 20


class Faults:
    """Makes the `first`-th of some os functions fail, and with `lasting` all later ones too."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...], number: int, *, lasting: bool) -> None:
        self.left = 0
        self.number = number
        self.lasting = lasting
        for name in names:
            monkeypatch.setattr(os, name, self.failing(getattr(os, name)))

    def arm(self, first: int) -> None:
        self.left = first

    @property
    def struck(self) -> bool:
        return self.left <= 0

    def failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.left -= 1
            if self.left == 0 or (self.left < 0 and self.lasting and self.left > -MAX_STEPS):
                raise OSError(self.number, os.strerror(self.number))
            return real(*arguments, **named)

        return step


@pytest.mark.parametrize(
    ("names", "number", "lasting"),
    [(STEPS, errno.EIO, False), (STEPS, errno.EACCES, False), (GROWING, errno.ENOSPC, True), (GROWING, errno.ENOSPC, False)],
    ids=["one input or output error", "one refusal", "a full disk", "a disk full for a moment"],
)
def test_an_error_at_any_step_leaves_the_old_bundle_or_the_new_one(
    tmp_path: Path, way: str, names: tuple[str, ...], number: int, lasting: bool
) -> None:
    failed = 0
    for first in scale.some(range(1, MAX_STEPS), 5):
        folder = fresh(tmp_path, first)
        with pytest.MonkeyPatch.context() as patch:
            faults = Faults(patch, names, number, lasting=lasting)
            faults.arm(first)
            try:
                writer.write(bundle(NEW), folder, memory(OLD))
                failure = None
            except OutputError as error:
                failure = error
            struck = faults.struck
        now = {path: text for path, text in found(folder).items() if not path.startswith(".gpushare-")}
        assert now == (BEFORE if failure else AFTER), (first, failure)
        failed += failure is not None
        assert_finishes(folder)
        if not struck:
            break
    assert not struck
    assert failed or number == errno.EACCES or not lasting
    assert first > 10


def exit_codes(jobs: Iterable[Callable[[], None]]) -> list[int]:
    """Of children that do these at the same time."""
    children = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        for job in jobs:
            child = os.fork()
            if child == 0:
                os._exit(in_child(job))
            children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def test_four_compiles_at_once_leave_one_whole_bundle(tmp_path: Path, way: str) -> None:
    folder = fresh(tmp_path, 0)
    versions = [NEW | {"README.md": f"version {number}\n", f"only-{number}.txt": "x\n"} for number in range(4)]

    def compiling(number: int) -> Callable[[], None]:
        def job() -> None:
            for _ in range(10):
                known = writer.read_lock(folder)
                assert not isinstance(known, Finding)
                try:
                    writer.write(bundle(versions[number]), folder, known)
                except OutputError as error:
                    assert "changed by another compile" in error.message  # noqa: PT017 - any other error ends the child

        return job

    assert exit_codes(compiling(number) for number in range(4)) == [0, 0, 0, 0]
    assert found(folder) in [texts(version) | FOREIGN for version in versions]
    assert [entry.name for entry in folder.parent.iterdir()] == ["bundle"]


def test_the_same_compile_four_times_at_once_succeeds_four_times(tmp_path: Path) -> None:
    folder = fresh(tmp_path, 0)

    def job() -> None:
        writer.write(bundle(NEW), folder, memory(OLD))

    assert exit_codes([job] * 4) == [0, 0, 0, 0]
    assert found(folder) == AFTER


def test_a_compile_that_waits_too_long_for_another_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fresh(tmp_path, 0)
    monkeypatch.setattr(writer, "WAIT_SECONDS", 0.05)
    handle = os.open(folder.parent, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(OutputError, match="another compile has been writing"):
            writer.write(bundle(NEW), folder, memory(OLD))
    finally:
        os.close(handle)
    assert found(folder) == BEFORE


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 KiB of its own."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("this user may not mount a file system")
    try:
        yield disk
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("inside", ["bundle", "."], ids=["a folder on it", "the disk itself"])
def test_a_really_full_disk_changes_nothing_and_says_so(small_disk: Path, inside: str) -> None:
    folder = small_disk / inside
    lay(folder, BEFORE)
    large = NEW | {f"file-{number}.txt": "x" * 4000 for number in range(20)}
    with pytest.raises(OutputError, match="No space left") as caught:
        writer.write(bundle(large), folder, memory(OLD))
    assert "nothing in it has changed" in caught.value.hint
    assert found(folder) == BEFORE
    assert not [path for path in small_disk.iterdir() if "gpushare-" in path.name]


def test_a_read_only_file_system_changes_nothing_and_says_so(small_disk: Path) -> None:
    lay(small_disk / "bundle", BEFORE)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(OutputError, match="Read-only file system"):
        writer.write(bundle(NEW), small_disk / "bundle", memory(OLD))
    assert found(small_disk / "bundle") == BEFORE


def test_a_mount_point_is_replaced_in_place(small_disk: Path) -> None:
    lay(small_disk, BEFORE)
    writer.write(bundle(NEW), small_disk, memory(OLD))
    assert found(small_disk) == AFTER


def test_a_folder_that_nobody_may_write_changes_nothing_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fresh(tmp_path, 0)
    real = os.mkdir

    def refused(path: Path, *arguments: Any, **named: Any) -> None:
        if ".gpushare-" in str(path) or ".bundle.gpushare-" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied")
        real(path, *arguments, **named)

    monkeypatch.setattr(os, "mkdir", refused)
    with pytest.raises(OutputError, match="Permission denied"):
        writer.write(bundle(NEW), folder, memory(OLD))
    assert found(folder.parent) == {f"bundle/{path}": text for path, text in BEFORE.items()}
