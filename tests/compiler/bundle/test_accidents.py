"""A write that is killed, fails or meets another: every file is whole, foreign files stay, and the next compile finishes."""

import errno
import os
import resource
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gpushare import pipeline
from gpushare.bundle import lock, writer
from gpushare.bundle.lock import Lock
from gpushare.bundle.writer import OutputError
from gpushare_node.contract.struct import replace
from tests.compiler.bundle.bundles import FOREIGN, NEW, OLD, bundle, found, lay, memory, texts
from tests.support import scale

BEFORE = texts(OLD) | FOREIGN
ADDED = NEW | {"argocd/app.yaml": "x\n"}
"""With a folder that the next bundle may not have."""
AFTER = texts(ADDED) | FOREIGN
OTHER = NEW | {"chart/files/policies/come.yaml": "otherwise\n", "README.md": "newest\n", "flux/sync.yaml": "x\n"}

EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir"}
"""What the interpreter reports to audit hooks before it asks the file system."""
MAX_STEPS = 2000
FAILED = 3


def fresh(parent: Path, number: int, files: dict[str, str] = BEFORE) -> Path:
    """A folder with the old bundle and foreign files, alone in its parent."""
    folder = parent / str(number) / "bundle"
    lay(folder, files)
    return folder


def known(folder: Path) -> Lock:
    """The lock there, which is always a valid one."""
    found_lock = writer.read_lock(folder)
    assert isinstance(found_lock, Lock)
    return found_lock


def folders(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_dir()}


def assert_finishes(folder: Path, files: dict[str, str]) -> None:
    """The next run ends with exactly this bundle, as if none had been interrupted, and nothing in or beside it."""
    expected = texts(files) | FOREIGN
    writer.write(bundle(files), folder, known(folder))
    assert found(folder.parent) == {f"bundle/{path}": text for path, text in expected.items()}
    assert folders(folder) == {str(parent) for path in expected for parent in Path(path).parents} - {"."}
    assert writer.changes(bundle(files), folder) == ()


def in_child(job: Callable[[], object]) -> int:
    """Run a job in a forked process; its exit status or minus the signal that ended it. OutputError is FAILED."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # forking beside threads: the child touches none of theirs
        child = os.fork()
    if child == 0:
        status = 1
        try:
            job()
            status = 0
        except OutputError:
            status = FAILED
        except KeyboardInterrupt:
            status = 130
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def interrupted(step: int, accident: Callable[[], object], job: Callable[[], object]) -> int:
    """What a job in a forked process comes to if this happens before its `step`-th event."""

    def run() -> None:
        left = step

        def hook(event: str, _: tuple[Any, ...]) -> None:
            nonlocal left
            left -= event in EVENTS
            if left == 0 and event in EVENTS:
                accident()

        sys.addaudithook(hook)
        job()

    return in_child(run)


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def interrupt() -> None:
    raise KeyboardInterrupt


def failing(number: int) -> Callable[[], None]:
    def fail() -> None:
        raise OSError(number, os.strerror(number))

    return fail


ACCIDENTS = [
    pytest.param(kill, -signal.SIGKILL, id="a kill"),
    pytest.param(interrupt, 130, id="Ctrl-C"),
    *(
        pytest.param(failing(number), FAILED, id=errno.errorcode[number])
        for number in (errno.ENOSPC, errno.EACCES, errno.EROFS, errno.EIO)
    ),
]


@pytest.mark.parametrize("before", [BEFORE, FOREIGN], ids=["an update", "a first bundle"])
@pytest.mark.parametrize(("accident", "status"), ACCIDENTS)
def test_failure_at_any_step_leaves_whole_files_and_the_next_compile_finishes(
    tmp_path: Path, accident: Callable[[], None], status: int, before: dict[str, str]
) -> None:
    """The next compile is of the same intent or of another."""
    writer.write(bundle(ADDED), tmp_path / "warm", lock.EMPTY)  # so that the children import nothing
    former = memory(OLD) if before is BEFORE else lock.EMPTY
    ended = set()
    # What fails differs in its number alone.
    for step in scale.some(range(1, MAX_STEPS), 24 if status == FAILED else 8):
        folder = fresh(tmp_path, step, before)
        result = interrupted(step, accident, partial(writer.write, bundle(ADDED), folder, former))
        assert result in {status, 0}, step
        now = {path: text for path, text in found(folder).items() if ".gpushare-" not in path}
        assert {path: now[path] for path in FOREIGN} == FOREIGN, step
        assert now.keys() >= before.keys() & AFTER.keys(), step
        left = found(folder).keys() - now.keys()
        assert accident is kill or not left, step
        lock_now, is_new = known(folder), now.get(lock.FILE) == AFTER[lock.FILE]
        assert is_new or replace(lock_now, files={}) == replace(former, files={}), step
        assert all(text in (before.get(path), AFTER.get(path)) for path, text in now.items() if path != lock.FILE), step
        assert lock_now.files.keys() >= now.keys() - FOREIGN.keys() - {lock.FILE}, step
        assert bool(writer.changes(bundle(ADDED), folder)) == (now != AFTER), step
        assert now == AFTER if is_new else result == status, step
        ended.add(now == AFTER)
        assert_finishes(folder, OTHER if step % 8 == 1 else ADDED)
        if result == 0 and step > 40:
            break
    assert result == 0
    assert ended == {True, False}


INTENT = """\
apiVersion: gpushare.dev/v1
kind: ClusterIntent
metadata: {name: lab}
spec:
  platform: {image: {repository: registry.example.org/node-runtime}}
  pools:
    p: {card: t4, nodes: {matchLabels: {a: b}}, gpusPerNode: 4, sharing: {mode: %s}}
"""


def test_interrupted_compile_keeps_previous_profiles(tmp_path: Path) -> None:
    """Nodes that are away still have it: the bundle equals that of a compile that was not interrupted."""

    def compile_into(folder: Path, mode: str) -> None:
        intent = (INTENT % mode).encode()
        compilation = pipeline.compile_intent(intent, "intent.yaml", known(folder))
        assert compilation.artifacts, compilation.findings
        writer.write(compilation.artifacts, folder, known(folder))

    whole = tmp_path / "whole"
    shared = "time-slicing, replicas: 4"
    compile_into(whole, "exclusive")
    first = found(whole)
    compile_into(whole, shared)
    assert known(whole).profiles.former
    results = set()
    for step in range(1, MAX_STEPS, 1 if scale.is_long else 23):
        folder = fresh(tmp_path, step, first)
        results.add(interrupted(step, kill, partial(compile_into, folder, shared)))
        compile_into(folder, shared)
        assert found(folder.parent) == {f"bundle/{path}": text for path, text in found(whole).items()}, step
        if 0 in results:
            break
    assert results == {0, -signal.SIGKILL}


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


def test_four_compiles_at_once_leave_whole_files_and_the_lock_of_one(tmp_path: Path) -> None:
    folder = fresh(tmp_path, 0)
    versions = [NEW | {"README.md": f"version {number}\n" * 1000, f"only-{number}.txt": "x\n"} for number in range(4)]

    def compiling(number: int) -> Callable[[], None]:
        def job() -> None:
            for _ in range(10):
                try:
                    writer.write(bundle(versions[number]), folder, known(folder))
                except OutputError as error:
                    clear = "by another compile" in str(error) or "no other compile" in error.hint
                    assert clear, error  # noqa: PT017 - any other error ends the child

        return job

    assert exit_codes(compiling(number) for number in range(4)) == [0, 0, 0, 0]
    now = found(folder)
    assert {path: now[path] for path in FOREIGN} == FOREIGN
    whole = [BEFORE, *map(texts, versions)]
    for path in now.keys() - FOREIGN.keys() - {lock.FILE}:
        assert now[path] in [one.get(path) for one in whole], path
    writer.write(bundle(versions[0]), folder, known(folder))
    assert {path: text for path, text in found(folder).items() if "only-" not in path or "only-0" in path} == (
        texts(versions[0]) | FOREIGN
    )


def test_a_write_that_breaks_off_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    folder = fresh(tmp_path, 0)
    large = NEW | {"large.txt": "x" * 100_000}

    def job() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))
        writer.write(bundle(large), folder, memory(OLD))

    assert in_child(job) == FAILED
    assert {path: text for path, text in found(folder).items() if path != lock.FILE} == (
        {path: text for path, text in BEFORE.items() if path != lock.FILE}
    )
    assert_finishes(folder, large)


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
def test_full_disk_is_reported_and_keeps_the_old_files(small_disk: Path, inside: str) -> None:
    folder = small_disk / inside
    lay(folder, BEFORE)
    large = NEW | {f"file-{number}.txt": "x" * 4000 for number in range(20)}
    with pytest.raises(OutputError, match="No space left") as caught:
        writer.write(bundle(large), folder, memory(OLD))
    assert caught.value.hint.startswith("free some space, then run it again")
    assert {path: text for path, text in found(folder).items() if path != lock.FILE} == (
        {path: text for path, text in BEFORE.items() if path != lock.FILE}
    )
    subprocess.run(["mount", "-o", "remount,size=1m", small_disk], check=True)
    writer.write(bundle(large), folder, known(folder))
    assert found(folder) == texts(large) | FOREIGN


def test_read_only_file_system_is_reported(small_disk: Path) -> None:
    lay(small_disk / "bundle", BEFORE)
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(OutputError, match="Read-only file system"):
        writer.write(bundle(NEW), small_disk / "bundle", memory(OLD))
    assert found(small_disk / "bundle") == BEFORE
